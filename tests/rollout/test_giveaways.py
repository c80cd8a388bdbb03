"""Teachers' turns of two voices: what is found to give the answer away, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from convbench.rollout.checks import leaks
from convbench.schema import Choice, Example

FILE = yaml.safe_load((Path(__file__).parent / "giveaways.yaml").read_text(encoding="utf-8"))
LEAST = {"confirmed": 15, "advised": 14, "eliminated": 16, "named": 14}
"""Turns of 20 of a kind that are found."""


def asked(name: str) -> Example:
    question = FILE["questions"][name]
    choices = tuple(Choice(label=a, text=text) for a, text in question["options"].items())
    return Example(
        example_id=name, task="t", split="test", group_id=name, question=question["question"],
        choices=choices, answer=question["answer"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", LEAST)
def test_most_turns_that_give_the_answer_away_are_found(kind: str) -> None:
    rows = [row for voice in FILE["leaks"].values() for row in voice[kind]]
    assert len(rows) == 20
    assert sum(leaks(text, asked(name)) for name, text in rows) >= LEAST[kind]


@pytest.mark.parametrize(("name", "text"), [r for v in FILE["innocents"].values() for r in v])
def test_no_turn_that_only_helps_is_flagged(name: str, text: str) -> None:
    assert not leaks(text, asked(name))


@pytest.mark.parametrize(
    "filler",
    ["the ", "beetle ", "it is ", "you got ", "spider, ", "my pen ", "B ", "yes ", "only beetle "],
)
def test_long_turns_are_read_in_linear_time(filler: str) -> None:
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    leaks(filler * (60_000 // len(filler)), asked("insect"))
