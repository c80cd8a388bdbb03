"""Ties: no sample of a question, and so no temperature, is preferred where rewards are equal."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.learn import pairs, weights
from convbench.learn.select import Selection, select
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Data, Pairing, Weighting
from tests.helpers import tiny

TASKS = 60


@pytest.fixture(scope="module")
def selection(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """Sixty questions: the first two samples are best alike, the other two worst alike; a last
    question has one best and one worst conversation."""
    judged = []
    for number in range(TASKS):
        for sample, reward in enumerate((0.9, 0.9, 0.1, 0.1)):
            item = tiny.conversation(f"q{number}", sample, [f"{number} {sample}"])
            judged.append((item, [tiny.verdict(item, reward)]))
    for sample, reward in enumerate((0.1, 0.5, 0.9)):
        item = tiny.conversation("last", sample, [f"last {sample}"])
        judged.append((item, [tiny.verdict(item, reward)]))
    examples = [tiny.example(f"q{number}") for number in range(TASKS)] + [tiny.example("last")]
    folder = tmp_path_factory.mktemp("ties") / "run"
    return select(tiny.make_run(folder, judged, examples), Data())


def samples(found: weights.Weighted) -> list[tuple[str, int]]:
    """Which sample of which question was taken."""
    return [(item.task, item.conversation.sample) for item, _ in found.items]


def test_star_gate_draws_among_equals_and_the_seed_decides(selection: Selection) -> None:
    found = weights.weigh_star_gate(selection, Weighting(), seed=1)
    drawn = Counter(sample for task, sample in samples(found) if task != "last")
    assert sum(drawn.values()) == TASKS
    assert set(drawn) == {0, 1}
    assert min(drawn.values()) > TASKS / 5, "neither is preferred"
    assert samples(found) == samples(weights.weigh_star_gate(selection, Weighting(), seed=1))
    assert samples(found) != samples(weights.weigh_star_gate(selection, Weighting(), seed=2))
    assert ("last", 2) in samples(found)
    assert found.ties is not None
    assert found.ties.record() == {"rule": "random", "tied": TASKS, "tasks": TASKS + 1}


def test_all_takes_every_equal_and_drop_none(selection: Selection) -> None:
    every = weights.weigh_star_gate(selection, Weighting(ties="all"))
    assert len(every.items) == 2 * TASKS + 1
    assert samples(weights.weigh_star_gate(selection, Weighting(ties="drop"))) == [("last", 2)]


def test_pairs_draw_on_both_sides(selection: Selection) -> None:
    direct = catalog.load_spec(ProtocolSpec, "protocols", "direct")
    found = pairs.final_replies(selection, direct, Pairing(), 3)
    drawn = Counter(
        (pair.chosen.text[-1], pair.rejected.text[-1])
        for pair in found.items
        if pair.task[0] == "q"
    )
    assert set(drawn) == {("0", "2"), ("0", "3"), ("1", "2"), ("1", "3")}
    assert found.ties is not None
    assert json.loads(json.dumps(found.ties.record()))["tied"] == TASKS
    every = pairs.logged_turns(selection, Pairing(ties="all"))
    assert len(every.items) == 4 * TASKS + 1
    alone = pairs.logged_turns(selection, Pairing(ties="drop"))
    assert [pair.task for pair in alone.items] == ["last"]
    assert alone.skipped == {"tasks with several best or worst conversations": TASKS}


def test_where_all_are_tied_drop_leaves_nothing(tmp_path: Path) -> None:
    judged = []
    for sample, reward in enumerate((0.9, 0.9, 0.1)):
        item = tiny.conversation("q0", sample, [str(sample)])
        judged.append((item, [tiny.verdict(item, reward)]))
    found = select(tiny.make_run(tmp_path / "run", judged, [tiny.example("q0")]), Data())
    with pytest.raises(TrainError, match="no pair is left"):
        pairs.logged_turns(found, Pairing(ties="drop"))
    with pytest.raises(TrainError, match="no conversation is left"):
        weights.weigh_star_gate(found, Weighting(ties="drop"))
