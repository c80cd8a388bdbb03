"""Statistics of panels, against published figures and other implementations."""

from itertools import islice

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convbench.judges.panel import ConversationLength, summarise_panel
from convbench.schema import Failure, JudgeSpec, Verdict
from convbench.stats.agreement import krippendorff_alpha, spearman, weighted_kappa
from tests.support.later import later
from tests.support.memory import BLOCK, peak

scipy_stats = later("scipy.stats")
sklearn_metrics = later("sklearn.metrics")

_ = None
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]
"""Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), four raters, twelve units."""


@pytest.mark.parametrize(
    ("level", "value"),
    [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)],
)
def test_alpha_of_the_published_example(level, value):
    assert round(krippendorff_alpha(PUBLISHED, level), 3) == value


SCORES = st.one_of(st.none(), st.sampled_from([0, 2, 5, 5.5, 10]))


@settings(deadline=None)  # the other library is imported by the first example
@given(st.lists(st.tuples(SCORES, SCORES, SCORES), min_size=2, max_size=12))
def test_alpha_agrees_with_the_library(units):
    ratings = [list(rater) for rater in zip(*units, strict=True)]
    table = np.array([[np.nan if v is None else v for v in row] for row in ratings], dtype=float)
    for level in ("nominal", "ordinal", "interval"):
        try:
            with np.errstate(invalid="ignore"):
                expected = krippendorff.alpha(reliability_data=table, level_of_measurement=level)
        except ValueError:  # fewer than two values
            expected = np.nan
        got = krippendorff_alpha(ratings, level)
        if got is None:
            assert not np.isfinite(expected) or expected == 1.0
        else:
            assert got == pytest.approx(expected)


def test_alpha_of_nothing_to_compare():
    assert krippendorff_alpha([[1, None], [None, 2]]) is None
    assert krippendorff_alpha([[3, 3], [3, 3]]) is None


@settings(deadline=None)  # the other library is imported by the first example
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=2, max_size=20))
def test_kappa_agrees_with_the_library(pairs):
    first, second = (list(side) for side in zip(*pairs, strict=True))
    got = weighted_kappa(first, second)
    if got is not None:
        expected = sklearn_metrics.cohen_kappa_score(
            first, second, weights="quadratic", labels=list(range(11))
        )
        assert got == pytest.approx(expected, abs=1e-9)


def test_kappa_by_hand():
    assert weighted_kappa([1, 2, 3], [1, 2, 3]) == 1
    assert weighted_kappa([1, 3], [3, 1]) == -1
    assert weighted_kappa([0.5, 1.5], [0.5, 1.5]) == 1
    assert weighted_kappa([2, 2], [2, 2]) is None
    assert weighted_kappa([], []) is None
    with pytest.raises(ValueError, match="found 1 and 2"):
        weighted_kappa([1], [1, 2])


@settings(deadline=None)  # the other library is imported by the first example
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=15))
def test_spearman_agrees_with_the_library(pairs):
    first, second = (list(side) for side in zip(*pairs, strict=True))
    got = spearman(first, second)
    if got is None:
        assert len(set(first)) == 1 or len(set(second)) == 1
    else:
        assert got == pytest.approx(scipy_stats.spearmanr(first, second).statistic)


def talk(number, words):
    return ConversationLength(f"c{number}", "e", words)


def verdict(judge, number, overall=None, mark="f", metric="overall"):
    scored = {"scores": {metric: overall}, "reward": overall / 10} if overall is not None else {
        "failure": Failure(kind="UnreadableReply", message="m")
    }  # fmt: skip
    return Verdict(conversation_id=f"c{number}", judge=judge, fingerprint=mark, **scored)


def test_panel():
    talks = [talk(i, words) for i, words in enumerate((10, 20, 30, 40))]
    verdicts = [verdict("one", i, score) for i, score in enumerate((2, 4, 6, 8))]
    verdicts += [
        verdict("two", 0, 2),
        verdict("two", 1, 5),
        verdict("two", 2, 5),
        verdict("two", 3),
    ]
    verdicts += [verdict("one", 9, 10)]
    got = summarise_panel(talks, verdicts)
    one, two = got.judges
    assert one.reward is not None
    assert (one.judge, one.scored, one.failed, one.means, one.reward.mean) == (
        "one",
        4,
        0,
        {"overall": 5.0},
        0.5,
    )
    assert (two.scored, two.failed, two.means) == (3, 1, {"overall": 4.0})
    assert one.length == pytest.approx(1.0)
    (pair,) = got.pairs
    assert (pair.first, pair.second, pair.common) == ("one", "two", 3)
    assert pair.equal == pytest.approx(1 / 3)
    assert pair.apart is not None
    assert pair.apart.mean == pytest.approx(0.0)
    assert pair.kappa == pytest.approx(weighted_kappa([2, 4, 6], [2, 5, 5]))
    assert got.alpha == pytest.approx(krippendorff_alpha([[2, 4, 6, 8], [2, 5, 5, None]]))


def test_panel_of_one_judge_and_of_none():
    got = summarise_panel([talk(0, 3)], [verdict("one", 0, 7)])
    assert (got.pairs, got.alpha, got.judges[0].length) == ((), None, None)
    assert summarise_panel([], []).judges == ()


def test_judges_of_other_scales_are_compared_on_one() -> None:
    """Of 0 to 10 and of 1 to 5, read by a metric of another name: the same is the same."""
    talks = [talk(i, 10) for i in range(4)]
    specs = {"one": rubric("overall", 0, 10), "two": rubric("fairness", 1, 5)}
    given = [verdict("one", i, score, "one") for i, score in enumerate((0, 5, 5, 10))]
    given += [
        verdict("two", i, score, "two", metric="fairness") for i, score in enumerate((1, 3, 3, 5))
    ]
    got = summarise_panel(talks, given, specs=specs)
    (pair,) = got.pairs
    assert (pair.equal, pair.kappa, got.alpha) == (1, 1, 1)
    assert pair.apart is not None
    assert pair.apart.mean == 0


def rubric(metric: str, lowest: float, highest: float) -> JudgeSpec:
    return JudgeSpec(
        name=metric, title="t", kind="rubric", system="s", prompt="p", lowest=lowest,
        highest=highest, metrics=({"name": metric, "label": metric},),
        reward={"metric": metric, "scale": highest},
    )  # fmt: skip


@pytest.mark.exhaustive
def test_a_panel_holds_some_bytes_of_each_conversation() -> None:
    """Of two judges that say different things of all of them."""
    count = 3 * BLOCK
    names = [f"c{number * 7919 % count}" for number in range(count)]
    one, two = verdict("one", 0, 3.0), verdict("two", 0, 4.0)
    talks = [ConversationLength(name, name, 1) for name in names]
    given = [of.model_copy(update={"conversation_id": n}) for n in names for of in (one, two)]

    def look(count: int) -> None:
        found = summarise_panel(islice(talks, count), islice(given, 2 * count))
        assert [judge.scored for judge in found.judges] == [count, count]

    look(5_000)
    assert peak(look, count) < 240 * count
