"""Rewards to weights, against values computed by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.learn.select import select
from convbench.learn.weights import Weighted, group_weights, round_weights, weigh
from convbench.schema.recipe import Data, Recipe, Weighting
from tests.helpers import tiny


def weighting_of(recipe: str, **fields: Any) -> Weighting:
    """The weighting of a shipped recipe, with other fields."""
    sets = {f"weighting.{name}": value for name, value in fields.items()}
    return catalog.load_spec(Recipe, "recipes", recipe, sets=sets).weighting


@pytest.mark.parametrize(
    ("recipe", "fields", "rewards", "wanted"),
    [
        # mean 1/3, squared deviations 1/9 + 1/9 + 4/9 = 2/3, over m - 1 = 2: std = sqrt(1/3)
        ("swift", {}, [0, 0, 1], [-0.57735, -0.57735, 1.15470]),
        # mean 0.5, deviations -0.3 and 0.3, variance 0.18 / 1
        ("swift", {}, [0.2, 0.8], [-0.70711, 0.70711]),
        ("swift", {}, [0.3, 0.3, 0.3], [0, 0, 0]),
        ("swift", {}, [0.1 + 0.2, 0.3, 0.3], [0, 0, 0]),
        ("swift", {}, [0.7], [None]),
        ("swift", {"scale": False}, [0, 0, 1], [-1 / 3, -1 / 3, 2 / 3]),
        ("swift", {"center": False}, [0, 0, 1], [0, 0, 1.73205]),
        ("swift", {"clip": 1.0}, [0, 0, 1], [-0.57735, -0.57735, 1.0]),
        ("swift", {"keep": "positive"}, [0, 0, 1], [None, None, 1.15470]),
        ("refit", {}, [0.0, 0.4, 1.0], [0.0, 0.4, 1.0]),
        ("refit", {}, [0.4], [0.4]),
        ("star-gate", {}, [0.2, 0.9, 0.1], [None, 1, None]),
        ("star-gate", {}, [0.0], [1]),
        ("star-gate", {"ties": "all"}, [0.2, 0.9, 0.9], [None, 1, 1]),
        ("star-gate", {"ties": "drop"}, [0.2, 0.9, 0.9], [None, None, None]),
        ("star-gate", {"ties": "all"}, [0.3, 0.1 + 0.2], [1, 1]),
        ("star-gate", {"threshold": 0.95}, [0.2, 0.9], [None, None]),
        ("rft", {"threshold": 0.5}, [0.2, 0.5, 0.9], [None, 1, 1]),
        ("a-lol", {}, [0, 0, 1], [None, None, 2 / 3]),
        # exp((r - 1/3) / 0.5): exp(-2/3), exp(-2/3), exp(4/3)
        ("awr", {"temperature": 0.5}, [0, 0, 1], [0.51342, 0.51342, 3.79367]),
        ("awr", {"temperature": 0.1}, [0, 0, 1], [0.03567, 0.03567, 20]),
    ],
)
def test_group_weights_of_recipes(
    recipe: str, fields: dict[str, Any], rewards: list[float], wanted: list[float | None]
) -> None:
    found = group_weights(rewards, weighting_of(recipe, **fields), 0, "q")
    assert [w is None for w in found] == [w is None for w in wanted]
    known = [w for w in wanted if w is not None]
    assert [w for w in found if w is not None] == pytest.approx(known, abs=1e-5)


def test_group_weights_random_ties_take_one_by_seed_and_task() -> None:
    rule = weighting_of("star-gate")
    draws = [group_weights([0.9] * 4, rule, 0, f"q{n}").index(1.0) for n in range(40)]
    assert set(draws) == {0, 1, 2, 3}
    again = [group_weights([0.9] * 4, rule, 0, f"q{n}").index(1.0) for n in range(40)]
    assert draws == again


def test_group_weights_too_small_a_temperature_is_refused() -> None:
    with pytest.raises(TrainError, match=r"weighting\.temperature"):
        group_weights([0, 0, 1], weighting_of("awr", temperature=1e-4, clip=None))


def of_run(weighted: Weighted) -> dict[str, float]:
    return {item.id: weight for item, weight in weighted.of_conversations()}


def test_weigh_a_run_by_each_recipe(tmp_path: Path) -> None:
    selection = select([tiny.judged_run(tmp_path / "run")], Data())
    swift = weigh(selection, weighting_of("swift"))
    by_id = of_run(swift)
    assert by_id["run-q0-2"] == pytest.approx(1.15470, abs=1e-5)
    assert by_id["run-q1-1"] == pytest.approx(0.90727, abs=1e-5)
    # of 0.6, 0.9, 0.1: mean 1.6 / 3, variance (0.00444 + 0.13444 + 0.18778) / 2
    assert [by_id[f"run-q2-{i}"] for i in range(3)] == [0, 0, 0]
    assert swift.flat_tasks == pytest.approx(1 / 3)
    refit = list(of_run(weigh(selection, weighting_of("refit"))).values())
    assert refit == pytest.approx([0, 0, 1, 0.6, 0.9, 0.1, 0.3, 0.3, 0.3])
    gate = weigh(selection, weighting_of("star-gate"))
    assert list(of_run(gate))[:2] == ["run-q0-2", "run-q1-1"]
    assert len(gate.items) == 3, "one of q2's three equals"
    assert gate.ties is not None
    assert (gate.ties.tied, gate.ties.tasks) == (1, 3)
    assert len(weigh(selection, weighting_of("rft", threshold=0.5)).items) == 3


def test_weigh_over_all_compares_the_conversations_of_all_tasks(tmp_path: Path) -> None:
    selection = select([tiny.judged_run(tmp_path / "run")], Data())
    rewards = [item.reward for item in selection.logged]
    found = of_run(weigh(selection, weighting_of("swift", over="all", scale=False)))
    assert list(found.values()) == pytest.approx([r - fmean(rewards) for r in rewards])


def judged(folder: Path, rewards: dict[str, list[float]]) -> Any:
    """A selection of questions with such rewards."""
    talks = [
        (tiny.conversation(name, i, ["a", "b"]), reward)
        for name, of_task in rewards.items()
        for i, reward in enumerate(of_task)
    ]
    rows = [(talk, [tiny.verdict(talk, reward)]) for talk, reward in talks]
    return select([tiny.make_run(folder, rows, [tiny.example(name) for name in rewards])], Data())


def test_weigh_leaves_out_and_counts_small_tasks(tmp_path: Path) -> None:
    swift = weigh(judged(tmp_path / "a", {"q0": [0.2], "q1": [0.1, 0.9]}), weighting_of("swift"))
    assert swift.left_out == {"weighted out": 1}
    assert len(swift.items) == 2


@pytest.mark.parametrize(
    ("recipe", "rewards", "words"),
    [
        ("swift", {"q0": [0.1], "q1": [0.9]}, r"one judged conversation per task.*--samples 3"),
        ("swift", {"q0": [0.1, 0.1], "q1": [0.9, 0.9]}, "all weights are 0"),
        ("refit", {"q0": [0.5, -0.1]}, r"-0\.1.*Lemma 1"),
        ("rft", {"q0": [0.5, 0.1]}, "no conversation is left"),
    ],
)
def test_weigh_refuses(
    recipe: str, rewards: dict[str, list[float]], words: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainError, match=words):
        weigh(judged(tmp_path / "a", rewards), weighting_of(recipe))


def test_round_weights_is_floor_or_ceil_and_unbiased() -> None:
    scaled = [0.0, 0.25, 0.5, 0.8, 1.0]
    draws = [round_weights(scaled, 3.0, seed) for seed in range(4000)]
    for number, weight in enumerate(scaled):
        counts = [draw[number] for draw in draws]
        assert set(counts) <= {int(3 * weight), int(3 * weight) + 1}
        # standard error of a Bernoulli mean over 4000 draws is at most 0.008
        assert fmean(counts) == pytest.approx(3 * weight, abs=0.035)
    assert draws[7] == round_weights(scaled, 3.0, 7)


def test_round_weights_refuses_negative_weights() -> None:
    with pytest.raises(TrainError, match="refit"):
        round_weights([0.5, -0.5], 1.0, 0)
