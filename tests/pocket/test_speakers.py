"""The rule speakers: truthful, about one option or property, never with a letter."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from convbench.pocket import texts
from convbench.pocket.rows import load
from convbench.pocket.speakers import human, teacher
from convbench.pocket.world import LETTERS, PROPERTIES, make_world


def said(content: str) -> list[dict[str, str]]:
    """What a rule speaker has heard after its own first turn."""
    return [{"role": "assistant", "content": "..."}, {"role": "user", "content": content}]


def rows(kind: str) -> list[dict[str, Any]]:
    return list(islice(load(seed=0, kind=kind), 60))


@pytest.mark.parametrize("kind", ["facts", "clarify"])
def test_teacher_tells_the_truth_about_the_option_asked_for(kind: str) -> None:
    world = make_world()
    for row in rows(kind):
        for letter, option in zip(LETTERS, row["choices"], strict=True):
            reply = teacher(said(f"What about {option}?"), row)
            assert reply == teacher(said(f"What about {letter}?"), row)
            assert not set(reply.replace(".", " ").split()) & set(LETTERS)
            if row["kind"] == "of":
                assert (" not " in reply) == (letter != row["answer"])
            else:
                value = world.value(option, row["property"])
                assert reply == f"Fact: {option} has {row['property']} {value}."


@pytest.mark.parametrize("asked", [texts.NO_QUESTION, "", "What about {0} and {1}?"])
def test_teacher_has_nothing_to_tell_about_none_or_several(asked: str) -> None:
    for row in rows("facts"):
        assert teacher(said(asked.format(*row["choices"])), row) == texts.TEACHER_LOST


def test_teacher_takes_an_example_with_labelled_choices() -> None:
    row = rows("clarify")[0]
    choices = [{"label": x, "text": t} for x, t in zip(LETTERS, row["choices"], strict=True)]
    example = {"question": row["question"], "choices": choices}
    asked = said(f"What about {row['choices'][2]}?")
    assert teacher(asked, example) == teacher(asked, row)


def test_human_tells_the_wish_only_when_asked_for_its_property() -> None:
    for row in rows("collaboration"):
        wanted, value = row["reference"].split()
        for prop in PROPERTIES:
            reply = human(said(f"Which {prop}?"), row)
            assert (value in reply.split(".")[0].split()) == (prop == wanted)


def test_human_does_not_answer_a_question_about_nothing_or_everything() -> None:
    row = rows("collaboration")[0]
    assert human(said("Which one?"), row) == texts.HUMAN_LOST
    assert human(said(" ".join(PROPERTIES)), row) == texts.HUMAN_LOST


def test_wish_is_not_in_what_the_agent_sees() -> None:
    for row in rows("collaboration"):
        shown = " ".join([row["question"], *row["choices"]])
        assert row["reference"].split()[1] not in shown.split()


def test_a_missing_field_is_named() -> None:
    with pytest.raises(KeyError, match="reference"):
        human(said("Which color?"), {"question": "x"})
