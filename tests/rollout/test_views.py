"""What each speaker sees: nothing hidden, a prefix of what it sees next, what the record says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from convbench import catalog, views
from convbench.errors import SpecError
from convbench.schema import Example, Mode, ProtocolSpec, TaskSpec, text_of
from tests.helpers.table import QUESTION, TASK, Table, plain, played, protocol_of, shapes
from tests.support.exhaustive import by_turns

SHAPES = list(shapes())


def secret(task: TaskSpec, protocol: ProtocolSpec) -> Example:
    """An example whose every hidden field holds a text that nothing else holds."""
    seen = {name for speaker in protocol.speakers.values() for name in speaker.sees}
    tools = {name for s in protocol.speakers.values() for tool in s.tools for name in tool.sees}
    names = {*task.rows.hidden, *seen, *tools, "reference"} - {"answer"}
    return QUESTION.model_copy(
        update={
            "answer": "SENTINEL-answer",
            "hidden": {name: f"SENTINEL-{name}" for name in sorted(names)},
            "inputs": {**QUESTION.inputs, **{name: f"shown {name}" for name in task.rows.inputs}},
        }
    )


def leaks(table: Table, protocol: ProtocolSpec) -> list[str]:
    """Return `speaker: field` for every hidden text sent to one who does not name it."""
    found = []
    for call in table.sent:
        text = "\n".join(text_of(message["content"]) for message in call.messages)
        for name in ("answer", "reference", "told", "unknown", "questions", "prices"):
            if f"SENTINEL-{name}" in text and name not in protocol.speakers[call.speaker].sees:
                found.append(f"{call.speaker}: {name}")
    return found


@pytest.mark.parametrize(
    ("name", "mode", "turns", "task_name"), by_turns(SHAPES, sorted(catalog.spec_files("tasks")))
)
def test_no_hidden_text_is_sent_to_who_may_not_see_it(
    name: str, mode: Mode, turns: int, task_name: str
) -> None:
    """Every shipped protocol with every shipped task's own instruction and templates."""
    protocol = protocol_of(name)
    task = catalog.load_spec(TaskSpec, "tasks", task_name)
    table, conversation = played(
        protocol, mode=mode, turns=turns, task=task, example=secret(task, protocol)
    )
    assert table.sent
    assert leaks(table, protocol) == []
    for speaker, text in conversation.systems.items():
        hidden = {word for word in text.split() if "SENTINEL" in word}
        assert not hidden or protocol.speakers[speaker].sees


def test_the_human_of_a_collaboration_does_see_the_reference() -> None:
    """So that the test above cannot pass because nobody sees anything."""
    table, _ = played(protocol_of("collaboration"), example=secret(TASK, protocol_of("direct")))
    human = table.of("human")[0].messages
    assert "SENTINEL-reference" in text_of(human[0]["content"])


@pytest.mark.parametrize(
    "text", ["{{ answer }}", "{{ reference }}", "{{ hidden }}", "{{ example }}"]
)
def test_a_template_cannot_reach_what_its_speaker_does_not_see(text: str) -> None:
    task = TASK.model_copy(update={"overrides": {}})
    protocol = protocol_of("direct")
    value = protocol.model_dump()
    value["steps"][0]["say"] = text
    with pytest.raises(SpecError, match="undefined"):
        played(ProtocolSpec.model_validate(value), task=task)


@pytest.mark.parametrize(
    "text",
    [
        "{{ question.__class__.__mro__ }}",
        "{{ ''.join.__globals__ }}",
        "{{ 'x' * 10000000000 }}",
        "{{ [question] * 10000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%10000000000d' % 1 }}",
        "{% for i in range(10000000000) %}{% endfor %}",
        "{{ choices.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ nobody }}",
        "{{ question",
        "{% if %}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_hostile_or_broken_template_is_a_mistake_of_the_spec(text: str) -> None:
    value = protocol_of("direct").model_dump()
    value["steps"][0]["say"] = text
    with pytest.raises(SpecError) as refused:
        played(ProtocolSpec.model_validate(value))
    assert str(refused.value).startswith("step question: ")


def thoughts(speaker: str, number: int) -> str:
    return f"SECRET {number} OUTPUT: {plain(speaker, number)}" if speaker == "assistant" else "So."


def test_private_thought_stays_with_who_thought_it() -> None:
    table, conversation = played(protocol_of("collaboration"), turns=4, reply=thoughts)
    heard = [text_of(m["content"]) for call in table.of("human") for m in call.messages]
    assert not [text for text in heard if "SECRET" in text]
    own = [text_of(m["content"]) for m in table.of("assistant")[-1].messages]
    assert sum("SECRET" in text for text in own) == 3
    assert sum("SECRET" in text_of(turn.content) for turn in conversation.turns) == 4


@pytest.mark.parametrize(("name", "mode", "turns"), SHAPES)
def test_what_a_speaker_saw_before_is_a_prefix_of_what_it_sees_next(
    name: str, mode: Mode, turns: int
) -> None:
    protocol = protocol_of(name)
    table, _ = played(protocol, mode=mode, turns=turns)
    for speaker, spec in protocol.speakers.items():
        calls = table.of(speaker)
        assert spec.history == "all" or not spec.policy
        for before, after in pairwise(calls):
            if spec.history == "all":
                assert after.messages[: len(before.messages)] == before.messages
                assert len(after.messages) > len(before.messages)


@pytest.mark.parametrize(("name", "mode", "turns"), SHAPES)
def test_the_record_gives_back_exactly_what_was_sent(name: str, mode: Mode, turns: int) -> None:
    """Build and train call one function; a run read from disk yields the same messages."""
    protocol = protocol_of(name)
    table, conversation = played(protocol, mode=mode, turns=turns)
    read = type(conversation).model_validate_json(conversation.model_dump_json())
    for call in table.sent:
        assert views.messages_before(protocol, read, call.speaker, call.turn) == call.messages
        assert call.messages[-1]["role"] == "user"
        roles = [message["role"] for message in call.messages]
        assert roles[0] in ("system", "user")
        talk = [role for role in roles if role != "system"]
        assert talk[0] == "user"
        assert all(a != b for a, b in pairwise(talk)), "roles must alternate"


@pytest.mark.parametrize("ask", [None, "Say something."])
def test_a_policy_that_opens_gets_the_opening_then_as_ever_after(ask: str | None) -> None:
    """One who speaks first has nothing to answer: the opening stands there, now and later."""
    step = {"speaker": "policy", **({"ask": ask} if ask else {})}
    protocol = ProtocolSpec.model_validate(
        {
            "name": "first",
            "title": "the policy opens",
            "turns": {"default": 2, "min": 2, "max": 2},
            "speakers": {"policy": {"policy": True, "opening": "Begin."}, "other": {}},
            "steps": [
                {"id": "one", **step},
                {"id": "two", "speaker": "other", "say": "Go on."},
                {"id": "three", **step},
            ],
        }
    )
    table, conversation = played(protocol)
    first, second = table.of("policy")
    wanted = f"Begin.\n\n{ask}" if ask else "Begin."
    assert first.messages == [{"role": "user", "content": wanted}]
    assert second.messages[: len(first.messages)] == first.messages
    assert views.messages_before(protocol, conversation, "policy", 0) == first.messages


@pytest.mark.parametrize("speakers", [("policy",), ("other", "policy", "policy")])
def test_one_who_has_nothing_to_answer_is_a_mistake_of_the_spec(speakers: tuple[str, ...]) -> None:
    steps = [
        {"id": f"s{n}", "speaker": name, **({"say": "Hello."} if name == "other" else {})}
        for n, name in enumerate(speakers)
    ]
    protocol = ProtocolSpec.model_validate(
        {
            "name": "mute",
            "title": "nothing to answer",
            "speakers": {"policy": {"policy": True, "system": "Be brief."}, "other": {}},
            "steps": steps,
        }
    )
    with pytest.raises(SpecError, match=f"step s{len(speakers) - 1}: policy has nothing to answer"):
        played(protocol)
