"""Fields of `weighting`, against values computed by hand and the learners that they generalise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from convbench.errors import RunError, TrainError
from convbench.learn import weights
from convbench.learn.select import Selection, select
from convbench.learn.weights import reward_ranks, shape_weights
from convbench.schema.conversation import TurnCredit
from convbench.schema.recipe import Data, Weighting
from convbench.store.notes import append_credit
from tests.helpers import tiny


@pytest.fixture(scope="module")
def selection(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """Rewards (0, 0, 1), (.6, .9, .1) and (.3, .3, .3) of three questions."""
    return select(tiny.judged_run(tmp_path_factory.mktemp("run") / "run"), Data())


def by(**fields: Any) -> Weighting:
    """Neither mean nor deviation unless said."""
    return Weighting(**{"center": False, "scale": False, **fields})


def test_each_field_by_hand() -> None:
    rewards = [0.0, 0.0, 1.0]
    assert shape_weights(rewards, by()) == [0, 0, 1]
    assert shape_weights(rewards, by(center=True)) == pytest.approx([-1 / 3, -1 / 3, 2 / 3])
    # the others' means: 1/2, 1/2, 0
    assert shape_weights(rewards, by(center=True, leave_one_out=True)) == pytest.approx(
        [-0.5, -0.5, 1]
    )
    assert shape_weights(rewards, by(shape="one")) == [1, 1, 1]
    assert shape_weights(rewards, by(threshold=0.5)) == [None, None, 1]
    assert shape_weights([0, 2, 1], by(center=True, keep="positive")) == [None, 1, None]
    assert shape_weights([0, 2, 2], by(keep="best", ties="all")) == [None, 2, 2]
    assert shape_weights([0, 2, 2], by(keep="best", ties="drop")) == [None, None, None]
    e = math.exp(1)
    assert shape_weights(
        [0, 1], by(center=True, shape="exponential", temperature=0.5)
    ) == pytest.approx([1 / e, e])
    assert shape_weights([0, 9], by(center=True, shape="exponential", clip=20)) == pytest.approx(
        [math.exp(-4.5), 20]
    )


def test_ranks_are_shared_by_equals_and_hold_against_any_scale() -> None:
    assert reward_ranks([10, 30, 20]) == [0, 1, 0.5]
    assert reward_ranks([5, 5, 9]) == [0.25, 0.25, 1]
    assert reward_ranks([7]) == [0]
    rewards = [0.1, 0.5, 0.4, 0.5]
    assert shape_weights(rewards, by(rank=True)) == shape_weights(
        [math.exp(9 * r) for r in rewards], by(rank=True)
    )


def test_leave_one_out_is_the_mean_s_advantage_enlarged() -> None:
    """r - mean of the others = n / (n - 1) (r - mean): RLOO's and the plain baseline agree."""
    rewards = [0.1, 0.7, 0.4, 0.9]
    plain = shape_weights(rewards, by(center=True))
    others = shape_weights(rewards, by(center=True, leave_one_out=True))
    assert others == pytest.approx([4 / 3 * (one or 0) for one in plain])


def test_a_high_temperature_is_sft_and_a_low_one_is_refused() -> None:
    hot = shape_weights([0, 0.5, 1], by(center=True, shape="exponential", temperature=1e12))
    assert hot == pytest.approx([1, 1, 1])
    with pytest.raises(TrainError, match=r"weighting.temperature: found 1e-06"):
        shape_weights([0, 1], by(center=True, shape="exponential", temperature=1e-6))
    clipped = by(center=True, shape="exponential", temperature=1e-6, clip=5)
    assert shape_weights([0, 1], clipped) == [0, 5]


@pytest.mark.parametrize(
    ("learner", "fields"),
    [
        (weights.weigh_swift, {}),
        (weights.weigh_swift, {"clip": 0.6}),
        (weights.weigh_swift, {"scale": False}),
        (weights.weigh_refit, {"center": False, "scale": False}),
        (
            weights.weigh_star_gate,
            {"center": False, "scale": False, "shape": "one", "keep": "best"},
        ),
        (
            weights.weigh_star_gate,
            {"center": False, "scale": False, "shape": "one", "threshold": 0.5},
        ),
    ],
)
def test_the_paper_s_learners_are_settings_of_it(
    selection: Selection, learner: Any, fields: dict[str, Any]
) -> None:
    own = {name: fields[name] for name in ("clip", "scale", "threshold") if name in fields}
    wanted = learner(selection, Weighting(**own))
    found = weights.weigh_composed(selection, Weighting(**fields))
    assert [item.conversation.key for item, _ in found.items] == [
        item.conversation.key for item, _ in wanted.items
    ]
    assert [w for _, w in found.items] == pytest.approx([w for _, w in wanted.items])
    assert found.flat_tasks == wanted.flat_tasks
    assert found.ties == wanted.ties


def test_over_all_compares_every_conversation(selection: Selection) -> None:
    every = [0, 0, 1, 0.6, 0.9, 0.1, 0.3, 0.3, 0.3]
    found = weights.weigh_composed(selection, Weighting(over="all"))
    assert [w for _, w in found.items] == pytest.approx(weights.standardized_weights(every))
    by_task = weights.weigh_composed(selection, Weighting())
    assert [w for _, w in by_task.items][-3:] == [0, 0, 0], "equal rewards of one task"


def test_over_a_batch_leaves_rewards_to_training(selection: Selection) -> None:
    found = weights.weigh_composed(selection, Weighting(over="batch"))
    assert [w for _, w in found.items] == [0, 0, 1, 0.6, 0.9, 0.1, 0.3, 0.3, 0.3]


def test_turns_weigh_by_the_credit_they_were_given(tmp_path: Path) -> None:
    run = tiny.judged_run(tmp_path / "run")
    talks = [c for c in run.conversations() if c.example_id != "t0"]
    with pytest.raises(RunError, match="run convbench credit first"):
        weights.weigh_composed(select(run, Data()), by(reward="advantage"))
    append_credit(run, (
        TurnCredit(conversation_id=talk.conversation_id, turn_index=place, source="critic:j",
                   advantage=number - place / 10)
        for number, talk in enumerate(talks[:-1]) for place in (1, 3)
    ))  # fmt: skip
    found = weights.weigh_composed(select(run, Data()), by(reward="advantage", credit="critic:j"))
    assert found.by_turn[talks[2].conversation_id] == pytest.approx((1.9, 1.7))
    assert len(found.items) == len(talks) - 1
    assert found.skipped == {"without credit of every turn": 1}
    standard = weights.weigh_composed(select(run, Data()), Weighting(reward="advantage"))
    assert standard.by_turn[talks[0].conversation_id][0] == pytest.approx(-1)
    with pytest.raises(TrainError, match="trainer swift does not use"):
        weights.weigh_swift(select(run, Data()), Weighting(reward="advantage"))


def test_what_cannot_be_is_refused(selection: Selection) -> None:
    with pytest.raises(ValidationError, match="found best with over batch"):
        Weighting(over="batch", keep="best")
    with pytest.raises(TrainError, match="no conversation is left"):
        weights.weigh_composed(selection, by(threshold=2.0))
    for learner in (weights.weigh_swift, weights.weigh_refit, weights.weigh_star_gate):
        with pytest.raises(TrainError, match=r"weighting.rank: found True.*--set trainer=weighted"):
            learner(selection, Weighting(rank=True))
