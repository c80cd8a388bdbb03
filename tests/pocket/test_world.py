"""The world: answers follow from facts, options differ, splits are disjoint, nothing leaks."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest

from convbench import catalog
from convbench.pocket import rows
from convbench.pocket.rows import SIZES, load
from convbench.pocket.world import LETTERS, PROPERTIES, VALUES, make_world
from convbench.schema import TaskSpec
from convbench.tasks.load import load_examples
from tests.support.exhaustive import first_of

DRAWN = ("facts", "clarify", "collaboration")


@pytest.fixture(scope="module", params=DRAWN)
def kind_rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """All rows of one kind."""
    return list(load(seed=0, kind=request.param))


def options_that_fit(row: dict[str, Any]) -> list[str]:
    """The labels of the options that answer the question, from the world's facts alone."""
    world, words = make_world(), row["question"].rstrip("?.").split()
    if row["kind"] == "of":
        wanted = world.value(words[-1], row["property"])
        return [x for x, text in zip(LETTERS, row["choices"], strict=True) if text == wanted]
    need = {
        "has": lambda: words[-1],
        "same": lambda: world.value(words[-1], row["property"]),
        "wish": lambda: row["reference"].split()[1],
    }[row["kind"]]()
    values = [world.value(name, row["property"]) for name in row["choices"]]
    return [x for x, value in zip(LETTERS, values, strict=True) if value == need]


def test_every_value_belongs_to_one_property_and_every_name_to_one_group() -> None:
    world = make_world()
    values = [value for prop in PROPERTIES for value in VALUES[prop]]
    names = [*world.known, *world.strangers, *world.newcomers]
    assert len(set(values)) == len(values)
    assert len(set(names)) == len(names)
    assert set(world.facts) == {(name, prop) for name in names for prop in PROPERTIES}


def test_exactly_the_gold_option_follows_from_the_facts(kind_rows: list[dict[str, Any]]) -> None:
    for row in kind_rows:
        assert options_that_fit(row) == [row["answer"]], row


def test_options_are_distinct(kind_rows: list[dict[str, Any]]) -> None:
    for row in kind_rows:
        assert len(set(row["choices"])) == 4, row


def test_thousands_of_distinct_questions_in_disjoint_splits(
    kind_rows: list[dict[str, Any]],
) -> None:
    assert len({row["id"] for row in kind_rows}) == len(kind_rows) == sum(SIZES.values())
    assert Counter(row["split"] for row in kind_rows) == SIZES


def test_another_seed_never_moves_a_question_to_another_split() -> None:
    first = {row["id"]: row["split"] for row in load(seed=0)}
    second = {row["id"]: row["split"] for row in load(seed=1)}
    assert set(first) != set(second)
    assert all(first[key] == second[key] for key in set(first) & set(second))


def test_rows_are_the_same_for_the_same_seed() -> None:
    for kind in rows.KINDS:
        again = list(islice(load(seed=3, kind=kind), 50))
        assert list(islice(load(seed=3, kind=kind), 50)) == again


def test_first_row_of_seed_zero_never_changes() -> None:
    row = next(load(seed=0))
    assert (row["question"], row["choices"], row["answer"]) == (
        "Which has the same color as pazem?",
        ["ralil", "savom", "falul", "fumek"],
        "B",
    )


def test_gold_letter_is_uniform(kind_rows: list[dict[str, Any]]) -> None:
    counts = Counter(row["answer"] for row in kind_rows)
    expected = len(kind_rows) / 4
    chi_square = sum((counts[x] - expected) ** 2 / expected for x in LETTERS)
    assert chi_square < 16.27  # the 0.999 quantile with three degrees of freedom


def test_strangers_are_the_unknown_options_and_hold_the_answer() -> None:
    strangers = set(make_world().strangers)
    for row in load(seed=0, kind="clarify"):
        options = dict(zip(LETTERS, row["choices"], strict=True))
        assert {x for x, name in options.items() if name in strangers} == set(row["unknown"])
        assert row["answer"] in row["unknown"]
        assert len(row["unknown"]) == 2


def surface_features(row: dict[str, Any], label: str) -> list[float]:
    """Position, length and wording of one option, beside its rank among the four."""
    texts = row["choices"]
    place = LETTERS.index(label)
    text = texts[place]
    chars = [float(ch in text) for ch in "aeiou"] + [float(text.startswith(c)) for c in "bdfgklmn"]
    longer = sum(len(other) > len(text) for other in texts)
    shared = len(set(text) & set(row["question"]))
    position = [float(place == i) for i in range(4)]
    first = sorted(texts).index(text)
    kinds = [float(row["kind"] == kind) for kind in ("has", "same", "of")]
    return [*position, len(text), longer, shared, first, *chars, *kinds]


def leak_accuracy(
    train: list[dict[str, Any]], test: list[dict[str, Any]], options: str = ""
) -> float:
    """Accuracy of the option that a logistic regression finds likeliest to be gold, among all
    four or among those that the row's field `options` names."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    among = [(row, x) for row in train for x in row.get(options, LETTERS)]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(
        np.array([surface_features(row, x) for row, x in among]),
        np.array([x == row["answer"] for row, x in among]),
    )
    right = []
    for row in test:
        labels = row.get(options, LETTERS)
        scores = model.predict_proba(np.array([surface_features(row, x) for x in labels]))[:, 1]
        right.append(labels[int(scores.argmax())] == row["answer"])
    return float(np.mean(right))


def interval_holds(chance: float, accuracy: float, count: int) -> bool:
    """Whether the 95 % interval of an accuracy over `count` questions contains the chance."""
    return abs(accuracy - chance) <= 1.96 * math.sqrt(accuracy * (1 - accuracy) / count)


@pytest.mark.parametrize(
    ("kind", "options", "chance"),
    first_of([("clarify", "unknown", 0.5), ("facts", "", 0.25), ("collaboration", "", 0.25)]),
)
def test_surface_features_stay_at_chance(kind: str, options: str, chance: float) -> None:
    """Where somebody must be asked, the answer is one of the two strangers, by design."""
    everything = list(load(seed=0, kind=kind))
    train = [row for row in everything if row["split"] == "train"]
    test = [row for row in everything if row["split"] == "test"]
    accuracy = leak_accuracy(train, test, options)
    assert interval_holds(chance, accuracy, len(test)), accuracy


@pytest.mark.parametrize("name", first_of(["pocket", "pocket-clarify", "pocket-collaboration"]))
def test_tasks_give_examples_as_any_multiple_choice_task_does(name: str) -> None:
    """The same record as ARC's: four lettered options, a gold letter, hidden fields apart."""
    task = catalog.load_spec(TaskSpec, "tasks", name)
    found = load_examples(task, seed=0).examples
    assert len(found) == 500
    assert {one.split for one in found} == {"train", "validation", "test"}
    for one in found:
        assert one.letters == tuple(LETTERS)
        assert one.answer in LETTERS
        assert not set(one.inputs) & {"unknown", "reference", "answer"}


def test_the_leak_test_finds_a_planted_leak() -> None:
    planted = [
        {
            **row,
            "choices": [
                f"{t}{'x' * (x == row['answer'])}"
                for x, t in zip(LETTERS, row["choices"], strict=True)
            ],
        }
        for row in load(seed=0)
    ]
    assert leak_accuracy(planted[:2000], planted[2000:]) > 0.9
