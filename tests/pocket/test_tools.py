"""The tiny policy asks a tool in plain words: called, told, judged, trained on, exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.formats.export import export_conversations
from convbench.judges.ask import judge_messages
from convbench.judges.resolve import resolve_judge
from convbench.learn.rows import mask_stretches, prompted_replies
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.models.weights_path import resolve_path
from convbench.pocket.speakers import wish
from convbench.schema import Tool
from convbench.store import Run
from tests.helpers import stages

PROPERTY = {"type": "object", "properties": {"property": {"type": "string"}}}


def tool(words: str, parameters: object = PROPERTY) -> Tool:
    return Tool.model_validate(
        {"name": "wish", "about": "", "parameters": parameters, "function": "a:b", "words": words}
    )


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Which color?", {"property": "color"}), (" Which color? ", {"property": "color"}),
        ("Which color? I guess.", None), ("which color?", None), ("Which ?", None),
        ("Which (a+)+$?", {"property": "(a+)+$"}), ("Which " + "x" * 201 + "?", None),
        ("Which color\n?", None), ("", None), ("Which " * 100_000, None),
    ],
)  # fmt: skip
def test_a_call_in_words_is_those_words_and_nothing_else(
    said: str, found: dict[str, str] | None
) -> None:
    assert tool("Which {property}?").parse_call(said) == found


@pytest.mark.parametrize(
    "words", ["Which?", "{property} or {property}?", "{other}", "{property}{other}", ""]
)
def test_words_name_each_parameter_once(words: str) -> None:
    with pytest.raises(ValueError, match=r"each parameter once in braces|at least 1 character"):
        tool(words)


def test_wishes() -> None:
    fields = {"reference": "color red"}
    assert wish({"property": "color"}, fields) == "I need color red."
    assert wish({"property": "food"}, fields) == "I do not mind the food."
    assert wish({"property": "weight"}, fields) == "I do not know."


def test_it_asks_is_told_and_is_trained_as_it_was_served(tmp_path: Path) -> None:
    stages.build_result(
        "pocket-tools",
        model="local:pocket",
        tasks=8,
        run=tmp_path / "run",
        samples=2,
        temperatures=(1.0,),
    )
    run = Run.open(tmp_path / "run")
    protocol = run.manifest.protocol
    chat = ChatTokens(load_tokenizer(str(resolve_path("pocket"))))
    calling = [talk for talk in run.conversations() if talk.turns[-1].rounds]
    assert len(calling) >= 8
    for talk in calling:
        turn = talk.turns[-1]
        replies = prompted_replies(protocol, talk)
        for one, reply in zip(turn.rounds, replies, strict=False):
            (call,), (result,) = one.calls, one.results
            assert one.raw == f"Which {json.loads(call.arguments)['property']}?"
            assert len(chat.prompt_ids(reply.messages)) == one.prompt_tokens
            assert replies[-1].messages[-1]["role"] == "user"
            assert result.content in str([m["content"] for m in replies[-1].messages])
        pieces = [
            (on, chat.tokenizer.decode(ids))
            for row in chat.token_rows(replies)
            for on, ids in mask_stretches(row)
        ]
        learnt = "".join(text for on, text in pieces if on)
        assert all(one.raw and one.raw in learnt for one in turn.rounds)
        assert not any(one.results[0].content in learnt for one in turn.rounds)
    example = run.examples[calling[0].example_id]
    _, user = judge_messages(resolve_judge("x/y").spec, calling[0], example, key="k")
    assert "] Assistant calls wish:" in str(user["content"])
    done = export_conversations(run, "openai", tmp_path / "out")
    row = json.loads(next(iter(done.files.values())).read_text().splitlines()[0])
    assert "tools" not in row
    assert {m["role"] for m in row["messages"]} <= {"system", "user", "assistant"}


def found_out(run: Run) -> float:
    """The share of test dialogues in which the tool told what is wanted."""
    told = [
        any("I need" in str(result.content) for turn in talk.turns for made in turn.rounds
            for result in made.results)
        for talk in run.conversations()
        if run.examples[talk.example_id].split == "test"
    ]  # fmt: skip
    assert len(told) >= 60
    return sum(told) / len(told)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_tool_use_is_learnt(tmp_path: Path) -> None:
    """Asking for the right property pays; the policy learns to do so from its own logs, on
    questions that it was not trained on. Seen on 84 test dialogues: .65 before, 1.00 after, and
    .61 right answers before, .98 after."""
    made = stages.build(
        "pocket-tools",
        model="local:pocket",
        tasks=80,
        run=tmp_path / "run",
        samples=4,
        temperatures=(1.0,),
    ).path
    assert made is not None
    stages.judge(made, "rules")
    sets = ("fit.learning_rate=2e-4", "fit.epochs=2", "data.unit=conversation",
            "fit.batch_size=8", "fit.accumulation=1")  # fmt: skip
    trained = stages.train("swift-anchored", made, launch="none", set=sets, in_process=True)
    after = stages.evaluate(str(trained.path), made)
    assert found_out(after) > found_out(Run.open(made)) + 0.15
