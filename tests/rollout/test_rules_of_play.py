"""Modes, lengths and stops: what a protocol refuses and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.errors import SpecError
from convbench.options.shared import CallOptions
from convbench.schema import ProtocolSpec, text_of
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.table import Reply, plain, played, protocol_of

QUIET = CallOptions(quiet=True)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def build(protocol: str, **more: object) -> Run:
    return stages.build(
        "demo",
        protocol=protocol,
        model="scripted:policy",
        samples=1,
        temperatures=(0.7,),
        run=Path("run"),
        **more,
    )


REFUSED = [
    ("clarifying", {"mode": "standard"}, r"--mode standard: .*thinking only: .* section F\.1"),
    ("clarifying", {"turns": 4}, r"--turns 4: .*has exactly 3 turns \(section F\.1 fixes six"),
    ("clarifying-adaptive", {"mode": "standard"}, "thinking only: the prompts ask"),
    ("clarifying-adaptive", {"turns": 11}, "--turns 11: .*2 to 10 turns"),
    ("reasoning", {"turns": 2}, "--turns 2: .*3 to 10 turns"),
    ("reasoning", {"turns": 11}, "--turns 11: .*3 to 10 turns"),
    ("collaboration", {"mode": "thinking"}, "--mode thinking: .*OUTPUT marker"),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "shape", "line"), REFUSED)
def test_what_a_protocol_lacks_is_refused_with_the_reason(
    protocol: str, shape: dict[str, object], line: str
) -> None:
    if protocol == "collaboration":
        shape = {**shape, "teacher": "scripted:echo"}
    with pytest.raises(SpecError, match=line):
        build(protocol, **shape)
    assert not Path("run").exists()


@pytest.mark.parametrize("turns", range(3, 11))
def test_reasoning_inserts_numbered_turns(turns: int) -> None:
    table, conversation = played(protocol_of("reasoning"), turns=turns)
    assert len(table.of("assistant")) == turns
    middle = [text_of(t.content) for t in conversation.turns if t.step == "further"]
    assert [f"(turn {n})" in text for n, text in enumerate(middle, 3)] == [True] * (turns - 3)
    assert (conversation.turns[-2].step, conversation.turns[-1].step) == ("final", "final-reply")


def ready(number: int) -> Reply:
    def reply(speaker: str, n: int) -> str:
        done = speaker == "assistant" and n == number
        return "I think READY TO ANSWER now" if done else plain(speaker, n)

    return reply


@pytest.mark.parametrize(
    ("turns", "at", "spoken", "stop"),
    [
        (2, 1, 2, "marker"),
        (2, 9, 2, "limit"),
        (5, 1, 2, "marker"),
        (5, 4, 5, "marker"),
        (5, 5, 5, "limit"),
    ],
)  # fmt: skip
def test_adaptive_ends_at_the_marker_or_the_limit_and_always_answers(
    turns: int, at: int, spoken: int, stop: str
) -> None:
    table, conversation = played(protocol_of("clarifying-adaptive"), turns=turns, reply=ready(at))
    assert len(table.of("assistant")) == spoken
    assert conversation.stop == stop
    assert conversation.turns[-1].step == "answer"
    assert conversation.turns[-2].step == "final"
    asked = [turn for turn in conversation.turns if turn.step == "clarify"]
    answered = [turn for turn in conversation.turns if turn.step == "respond"]
    assert len(answered) == len(asked) - (stop == "marker"), "nobody answers the marker"


def test_the_teacher_s_marker_ends_nothing() -> None:
    def teacher_says_it(speaker: str, n: int) -> str:
        return "READY TO ANSWER" if speaker == "teacher" else plain(speaker, n)

    table, conversation = played(protocol_of("clarifying-adaptive"), turns=4, reply=teacher_says_it)
    assert (len(table.of("assistant")), conversation.stop) == (4, "limit")


def test_collaboration_ends_at_its_marker_which_private_thought_does_not_give() -> None:
    def reply(speaker: str, n: int) -> str:
        if speaker != "assistant":
            return "Blue, please."
        if n == 1:
            return "Shall I WANT TO ANSWER: no, ask. I WANT TO ANSWER: x OUTPUT: Which colour?"
        return "OUTPUT: I WANT TO ANSWER: a blue one"

    table, conversation = played(protocol_of("collaboration"), turns=10, reply=reply)
    assert [len(table.of(name)) for name in ("assistant", "human")] == [2, 1]
    assert conversation.stop == "marker"
    assert conversation.turns[-1].speaker == "assistant"


def test_collaboration_s_last_message_is_the_policy_s() -> None:
    table, conversation = played(protocol_of("collaboration"), turns=3)
    assert [len(table.of(name)) for name in ("assistant", "human")] == [3, 2]
    assert (conversation.stop, conversation.turns[-1].speaker) == ("limit", "assistant")


def test_others_see_a_turn_cut_where_the_protocol_says_so() -> None:
    def wordy(speaker: str, n: int) -> str:
        return "w" * 1000 if speaker == "human" else plain(speaker, n)

    table, conversation = played(protocol_of("collaboration"), turns=2, reply=wordy)
    assert table.of("assistant")[1].messages[-1]["content"] == "w" * 400
    assert text_of(conversation.turns[2].content) == "w" * 1000, "the record keeps all of it"


def test_a_long_request_is_seen_whole() -> None:
    """Two in five of ColBench's requests are longer than what the human may say, and end with the
    signature that the tests call."""
    value = protocol_of("collaboration").model_dump()
    value["steps"][0]["say"] = "w" * 900 + " def f(kills)"
    table, _ = played(ProtocolSpec.model_validate(value), turns=2)
    assert text_of(table.of("assistant")[1].messages[1]["content"]).endswith("w def f(kills)")


def test_a_speaker_s_own_sampling_goes_before_the_run_s() -> None:
    table, _ = played(protocol_of("collaboration"), turns=2)
    human, agent = table.of("human")[0].sampling, table.of("assistant")[0].sampling
    assert (human.temperature, human.max_tokens) == (0, 256)
    assert (agent.temperature, agent.max_tokens) == (0.7, 1024)
    assert agent.seed == 1


def test_a_speaker_with_a_short_memory_gets_the_last_message_only() -> None:
    value = protocol_of("clarifying").model_dump()
    value["speakers"]["teacher"]["history"] = "last"
    table, conversation = played(ProtocolSpec.model_validate(value))
    teacher = table.of("teacher")[0].messages
    assert [message["role"] for message in teacher] == ["system", "user"]
    assert text_of(teacher[1]["content"]).startswith("(assistant speaks, 1)")
    assert conversation.stop == "complete"


def test_the_teacher_is_the_base_model_and_stays_it_when_another_policy_is_evaluated() -> None:
    made = build("clarifying")
    cast = made.manifest.cast
    assert cast["teacher"] == cast["assistant"]
    assert cast["teacher"].model == "scripted:policy", "by its name, not as whoever is the policy"
    stages.evaluate("scripted:echo", Path("run"))
    [child] = Run.open(Path("run")).child_runs()
    assert child.manifest.cast["assistant"].model == "scripted:echo"
    assert child.manifest.cast["teacher"] == cast["teacher"]
    assert {c.split for c in child.examples.values() if c.split == "test"} == {"test"}
