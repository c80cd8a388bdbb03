"""The first batch that SWEET's scoring makes at the paper's scale."""

from __future__ import annotations

from tests.support.later import later

critic = later("convbench.learn.sweet.critic")


def test_eight_rows_of_two_thousand_tokens_are_the_first_batch() -> None:
    rows = critic.scoring_batch([(2000, 500)] * 16, critic.BUDGET)
    assert (rows.rows, rows.positions, rows.labelled) == (8, 16_000, 500)


def test_the_first_batch_is_the_longest_rows() -> None:
    rows = critic.scoring_batch([(10, 1), (30, 2), (20, 3)], 60)
    assert (rows.rows, rows.tokens, rows.labelled) == (2, 30, 3)
    assert critic.scoring_batch([(100, 5)], 60).tokens == 100, "never none"
    assert critic.scoring_batch([], 60).positions == 0
