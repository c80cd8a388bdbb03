"""Win rates and strengths: against published figures, other programs."""

from __future__ import annotations

import csv
import math
import random

import pytest

from convbench.stats.duels import (
    Duel,
    Round,
    rank_policies,
    summarise_wins,
)
from convbench.stats.means import inverse_logit
from tests.helpers.excerpts import SHARED
from tests.stats.matches import plays

JUDGES = SHARED / "data" / "judges"
HERE = JUDGES.is_dir()


@pytest.mark.skipif(not HERE, reason="the stored judgments of AlpacaEval are not here")
def test_published_win_rates_and_errors_come_out_of_the_stored_judgments() -> None:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(JUDGES / "alpaca_eval_preferences.parquet").to_pylist()
    with (JUDGES / "alpaca_eval_published.csv").open() as file:
        published = {row["model"]: row for row in csv.DictReader(file)}
    found: dict[str, list[Duel]] = {}
    for row in table:
        value = row["preference"] - 1
        if value == value:
            duel = Duel(str(row["item"]), value, value)
            found.setdefault(row["model"], []).append(duel)
    assert found.keys() == published.keys()
    assert len(found) > 30
    for model, duels in found.items():
        total = summarise_wins(duels)
        assert total is not None
        assert total.rate.error is not None
        want = published[model]
        assert total.rate.mean == pytest.approx(float(want["win_rate"]) / 100, abs=1e-9)
        assert total.rate.error == pytest.approx(float(want["standard_error"]) / 100, abs=1e-9)


def test_a_duel_counts_both_orders_and_says_what_the_order_chose() -> None:
    found = summarise_wins([
        Duel("a", 1, 1), Duel("a", 1, 0), Duel("b", 0, 1), Duel("b", 0.5, 0.5), Duel("c", 0, 0.5),
    ])  # fmt: skip
    assert found is not None
    assert (found.wins, found.ties, found.losses) == (1, 3, 1)
    assert found.rate.mean == 0.55
    assert (found.flips.mean, found.to_first) == (0.4, 1)
    # shown first preferred, mean of both orders: 1/2, 1, 0, 1/2, (0 + 1/2) / 2
    assert found.first.mean == pytest.approx((0.5 + 1 + 0 + 0.5 + 0.25) / 5)
    assert summarise_wins([]) is None


def test_strengths_are_those_of_other_programs() -> None:
    choix, evalica = pytest.importorskip("choix"), pytest.importorskip("evalica")
    rounds = [one for one in plays(random.Random(1), (0, 0.4, -0.3, 1.1), 400) if one.value != 0.5]
    found = rank_policies(4, rounds, times=0)
    assert found is not None
    data = [(r.first, r.second) if r.value == 1 else (r.second, r.first) for r in rounds]
    theirs = choix.opt_pairwise(4, data, alpha=0.0, tol=1e-12)
    ours = [bound.value for bound in found.strengths]
    assert ours == pytest.approx([s - theirs[0] for s in theirs], abs=1e-6)
    one = evalica.bradley_terry(
        [str(a) for a, _ in data], [str(b) for _, b in data], [evalica.Winner.X] * len(data),
        tolerance=1e-14, limit=10000,
    ).scores.to_dict()  # fmt: skip
    assert ours == pytest.approx([math.log(one[str(k)] / one["0"]) for k in range(4)], abs=1e-6)


def test_length_is_told_apart_from_strength() -> None:
    rounds = plays(random.Random(2), (0.0, 0.0, 0.8), 3000, length=1.5)
    plain, level = (
        rank_policies(3, rounds, times=0),
        rank_policies(3, rounds, times=200, length=True),
    )
    assert plain is not None
    assert level is not None
    assert level.length is not None
    # Policy 1 is as good as policy 0 and writes twice as much.
    assert plain.strengths[1].value > 0.3
    bounds = level.strengths[1]
    assert bounds.low is not None
    assert bounds.high is not None
    assert bounds.low < 0 < bounds.high
    assert level.length.value == pytest.approx(1.5 / 3, abs=0.15)
    assert inverse_logit(0.0) == 0.5
    assert inverse_logit(-800) == 0


@pytest.mark.parametrize(
    "rounds",
    [
        [Round(0, 1, 1.0, "a"), Round(0, 1, 1.0, "b")],  # one won everything
        [Round(0, 1, 0.5, "a"), Round(0, 1, 1.0, "b")],  # of three, one never played
    ],
)
def test_what_is_not_finite_has_no_strengths(rounds: list[Round]) -> None:
    assert rank_policies(2 if rounds[0].value == 1 else 3, rounds, times=50) is None


def test_few_groups_or_no_variance_have_no_intervals() -> None:
    found = rank_policies(2, [Round(0, 1, 0.7, "a"), Round(0, 1, 0.6, "a")], times=50)
    assert found is not None
    assert found.strengths[1].value < 0
    assert found.strengths[1].low is None
