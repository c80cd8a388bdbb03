"""Rewards to weights, against values computed by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from convbench.errors import TrainError
from convbench.learn import weights
from convbench.learn.select import select
from convbench.schema.recipe import Data, Weighting
from tests.helpers import tiny


def test_swift_standardises_with_ddof_1() -> None:
    # mean 1/3, squared deviations 1/9 + 1/9 + 4/9 = 2/3, over m - 1 = 2: std = sqrt(1/3)
    assert weights.standardized_weights([0, 0, 1]) == pytest.approx(
        [-0.57735, -0.57735, 1.15470], abs=1e-5
    )


def test_swift_on_two_conversations() -> None:
    # mean 0.5, deviations -0.3 and 0.3, variance 0.18 / 1
    assert weights.standardized_weights([0.2, 0.8]) == pytest.approx([-0.70711, 0.70711], abs=1e-5)


@pytest.mark.parametrize("rewards", [[0.3, 0.3, 0.3], [0.1 + 0.2, 0.3, 0.3], [0.0, 0.0]])
def test_equal_rewards_weigh_nothing(rewards: list[float]) -> None:
    assert weights.standardized_weights(rewards) == [0.0] * len(rewards)


def test_one_reward_cannot_be_standardised() -> None:
    assert weights.standardized_weights([0.7]) == [None]


def test_fields_of_swift() -> None:
    assert weights.standardized_weights([0, 0, 1], scale=False) == pytest.approx(
        [-1 / 3, -1 / 3, 2 / 3]
    )
    assert weights.standardized_weights([0, 0, 1], center=False) == pytest.approx(
        [0, 0, 1.73205], abs=1e-5
    )
    clipped = weights.standardized_weights([0, 0, 1], clip=1.0)
    assert clipped == pytest.approx([-0.57735, -0.57735, 1.0], abs=1e-5)


def test_refit_takes_rewards_as_they_are_and_refuses_negative_ones() -> None:
    assert weights.reward_weights([0.0, 0.4, 1.0]) == [0.0, 0.4, 1.0]
    with pytest.raises(TrainError, match=r"-0\.1.*Lemma 1"):
        weights.reward_weights([0.5, -0.1])


def test_star_gate_keeps_the_best_and_settles_ties_by_the_rule() -> None:
    assert weights.best_weights([0.2, 0.9, 0.1]) == [None, 1.0, None]
    assert weights.best_weights([0.0]) == [1.0]
    assert weights.best_weights([0.2, 0.9, 0.9], "all") == [None, 1.0, 1.0]
    assert weights.best_weights([0.2, 0.9, 0.9], "drop") == [None, None, None]
    assert weights.best_weights([0.3, 0.1 + 0.2], "all") == [1.0, 1.0], "rounding makes no winner"
    assert weights.threshold_weights([0.2, 0.5, 0.9], 0.5) == [None, 1.0, 1.0]


def test_weights_of_a_run(tmp_path: Path) -> None:
    selection = select(tiny.judged_run(tmp_path / "run"), Data())
    swift = weights.weigh_swift(selection, Weighting())
    by_id = {item.conversation.conversation_id: w for item, w in swift.items}
    assert by_id["run-q0-2"] == pytest.approx(1.15470, abs=1e-5)
    assert by_id["run-q1-1"] == pytest.approx(0.90727, abs=1e-5)
    # of 0.6, 0.9, 0.1: mean 1.6 / 3, variance (0.00444 + 0.13444 + 0.18778) / 2
    assert [by_id[f"run-q2-{i}"] for i in range(3)] == [0, 0, 0]
    assert swift.flat_tasks == pytest.approx(1 / 3)
    refit = weights.weigh_refit(selection, Weighting())
    assert [w for _, w in refit.items] == [0, 0, 1, 0.6, 0.9, 0.1, 0.3, 0.3, 0.3]
    gate = weights.weigh_star_gate(selection, Weighting())
    best = [item.conversation.conversation_id for item, _ in gate.items]
    assert best[:2] == ["run-q0-2", "run-q1-1"]
    assert len(best) == 3, "one of q2's three equals"
    above = weights.weigh_star_gate(selection, Weighting(threshold=0.5))
    assert len(above.items) == 3


def test_swift_skips_and_counts_small_tasks_and_refuses_one_sample_a_task(tmp_path: Path) -> None:
    one = tiny.conversation("q0", 0, ["a", "b"])
    two = [tiny.conversation("q1", i, ["a", "b"]) for i in range(2)]
    judged = [(one, [tiny.verdict(one, 0.2)])]
    judged += [(c, [tiny.verdict(c, r)]) for c, r in zip(two, (0.1, 0.9), strict=True)]
    examples = [tiny.example("q0"), tiny.example("q1")]
    selection = select(tiny.make_run(tmp_path / "a", judged, examples), Data())
    swift = weights.weigh_swift(selection, Weighting())
    assert swift.skipped == {"in a task with fewer than 2 verdicts": 1}
    assert len(swift.items) == 2

    single = [tiny.conversation(name, 0, ["a", "b"]) for name in ("q0", "q1")]
    judged = [(c, [tiny.verdict(c, r)]) for c, r in zip(single, (0.1, 0.9), strict=True)]
    selection = select(tiny.make_run(tmp_path / "b", judged, examples), Data())
    with pytest.raises(TrainError, match=r"one judged conversation per task.*--samples 3"):
        weights.weigh_swift(selection, Weighting())


def test_swift_refuses_a_run_that_differs_only_between_tasks(tmp_path: Path) -> None:
    all_of = [tiny.conversation(name, i, ["a", "b"]) for name in ("q0", "q1") for i in range(2)]
    judged = [(c, [tiny.verdict(c, 0.1 if c.example_id == "q0" else 0.9)]) for c in all_of]
    run = tiny.make_run(tmp_path / "a", judged, [tiny.example("q0"), tiny.example("q1")])
    with pytest.raises(TrainError, match="all weights are 0"):
        weights.weigh_swift(select(run, Data()), Weighting())


def test_rounding_is_floor_or_ceil_and_unbiased() -> None:
    scaled = [0.0, 0.25, 0.5, 0.8, 1.0]
    draws = [weights.round_weights(scaled, 3.0, seed) for seed in range(4000)]
    for number, weight in enumerate(scaled):
        counts = [draw[number] for draw in draws]
        assert set(counts) <= {int(3 * weight), int(3 * weight) + 1}
        # standard error of a Bernoulli mean over 4000 draws is at most 0.008
        assert fmean(counts) == pytest.approx(3 * weight, abs=0.035)
    assert draws[7] == weights.round_weights(scaled, 3.0, 7)


def test_rounding_refuses_negative_weights() -> None:
    with pytest.raises(TrainError, match="refit"):
        weights.round_weights([0.5, -0.5], 1.0, 0)
