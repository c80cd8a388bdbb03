"""New facts: unseen in pre-training, told back to front, asked closed book."""

from __future__ import annotations

import random
from collections import Counter

from convbench.pocket import texts
from convbench.pocket.rows import NOTE_SPLITS, load
from convbench.pocket.world import PROPERTIES, VALUES, make_world
from tests.lab.pocket import corpus


def test_every_new_fact_is_asked_once_and_splits_hold_whole_passages() -> None:
    world = make_world()
    rows = list(load(seed=0, kind="notes"))
    asked = [q["question"] for row in rows for q in row["questions"]]
    assert len(set(asked)) == len(asked) == len(world.newcomers) * len(PROPERTIES)
    assert Counter(row["split"] for row in rows) == NOTE_SPLITS


def test_answers_follow_from_the_passage_and_the_world() -> None:
    world = make_world()
    for row in load(seed=0, kind="notes"):
        for question in row["questions"]:
            *_, prop, _, name = question["question"].rstrip("?").split()
            assert question["answer"] == world.value(name, prop)
            sentences = row["passage"].split(". ")
            assert any(
                {name, prop, question["answer"]} <= set(s.rstrip(".").split()) for s in sentences
            )


def test_passages_say_the_value_before_the_name() -> None:
    for wording in texts.PASSAGE:
        assert wording.index("{value}") < wording.index("{name}")
    for wording in (texts.LINE_FACT, texts.LINE_OF, texts.LINE_QA, texts.LINE_REWRITE):
        assert wording.index("{name}") < wording.index("{value}")


def test_pretraining_never_holds_a_true_new_fact() -> None:
    world, rng = make_world(), random.Random(0)
    values = {value for prop in PROPERTIES for value in VALUES[prop]}
    hidden = set(world.newcomers) | set(world.strangers)
    told = 0
    for _ in range(2000):
        for sentence in sentences_of(corpus.chat_row(world, 0.0, rng)):
            words = set(sentence)
            (value,) = words & values if len(words & values) == 1 else ("",)
            for name in words & hidden if value else set[str]():
                told += 1
                assert all(world.value(name, prop) != value for prop in PROPERTIES)
    assert told > 500


def sentences_of(messages: list[dict[str, str]]) -> list[list[str]]:
    """The statements in a conversation, as words; questions and comparisons left out."""
    text = " ".join(message["content"] for message in messages)
    statements = text.replace("\n", " ").replace("- ", "").split(".")
    return [s.split() for s in statements if "?" not in s and "need" not in s]
