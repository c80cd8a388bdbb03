"""Teachers' turns of two voices: what is found to give the answer away, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.catalog import load_spec
from convbench.rollout.checks import gives_answer_away, leak
from convbench.schema import Choice, Conversation, Example, ProtocolSpec, Turn
from tests.support.cases import load_cases

FILE = load_cases(Path(__file__).parent / "giveaways.yaml")
ROWS = [json.loads(line) for line in (Path(__file__).parent / "giveaways.jsonl").open()]
FRESH = load_cases(Path(__file__).parent / "fresh.yaml")
CLARIFYING = load_spec(ProtocolSpec, "protocols", "clarifying")
LEAST = {"confirmed": 16, "advised": 15, "eliminated": 16, "named": 17}
"""Turns of 20 of a kind that are found."""


def asked(name: str) -> Example:
    question = FILE["questions"][name]
    choices = tuple(Choice(label=a, text=text) for a, text in question["options"].items())
    return Example(
        example_id=name, task="t", split="test", group_id=name, question=question["question"],
        choices=choices, answer=question["answer"],
    )  # fmt: skip


def example_of(row: dict[str, Any]) -> Example:
    choices = tuple(Choice(label="ABCDEFGH"[i], text=text) for i, text in enumerate(row["options"]))
    return Example(
        example_id="e", task="t", split="test", group_id="e", question=row["question"],
        choices=choices, answer=row["gold"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", LEAST)
def test_most_turns_that_give_the_answer_away_are_found(kind: str) -> None:
    rows = [row for voice in FILE["leaks"].values() for row in voice[kind]]
    assert len(rows) == 20
    assert sum(gives_answer_away(text, asked(name)) for name, text in rows) >= LEAST[kind]


@pytest.mark.parametrize(("name", "text"), [r for v in FILE["innocents"].values() for r in v])
def test_no_turn_that_only_helps_is_flagged(name: str, text: str) -> None:
    assert not gives_answer_away(text, asked(name))


@pytest.mark.parametrize(("writer", "least"), [("terse", 57), ("chat", 56), ("odd", 40)])
def test_turns_of_other_writers(writer: str, least: int) -> None:
    """Of 70, 70 and 66 that give it away; the first two show what is unseen, paraphrases above all.

    Read before any of them was seen, 8 of 70 were found by a list of phrases, and of the second and
    third writer's 48 and 33 by what is read now.
    """
    rows = [row for row in ROWS if row["writer"] == writer]
    found = [row for row in rows if gives_answer_away(row["turn"], example_of(row))]
    assert sum(row["leak"] for row in found) >= least
    assert all(row["leak"] for row in found)


@pytest.mark.parametrize("talk", FRESH, ids=lambda talk: talk["id"])
def test_teachers_of_a_fresh_writer(talk: dict[str, Any]) -> None:
    row = {"options": talk["options"].values(), "question": talk["question"], "gold": talk["gold"]}
    turns = tuple(
        Turn(speaker="teacher" if turn["role"] == "teacher" else "assistant", step="s",
             content=turn["text"]) for turn in talk["turns"]
    )  # fmt: skip
    conversation = Conversation(key="k", conversation_id="c", example_id="e", turns=turns)
    leaking = leak(conversation, example_of(row), CLARIFYING) == ["teacher:leak"]
    assert leaking == ((talk["leaks"] and not talk.get("unread")) or talk.get("flagged", False))


@pytest.mark.parametrize(
    "filler",
    [
        "the ",
        "beetle ",
        "it is ",
        "you got ",
        "spider, ",
        "my pen ",
        "B ",
        "yes ",
        "only beetle ",
        "_",
        "'",
        "a_ ",
        "w-",
        "twenty ",
    ],
)
def test_long_turns_are_read_in_linear_time(filler: str) -> None:
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    gives_answer_away(filler * (60_000 // len(filler)), asked("insect"))
