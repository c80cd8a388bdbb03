"""Statistics of a panel of judges."""

import math

import pytest

from convbench.judges.panel import ConversationLength, summarise_panel
from convbench.schema import Failure, JudgeSpec, Verdict
from convbench.stats.agreement import krippendorff_alpha, weighted_kappa


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
    ((first, second, pair),) = got.pairs
    assert (first, second, pair.common) == ("one", "two", 3)
    assert pair.equal == pytest.approx(1 / 3)
    assert pair.difference.mean == pytest.approx(0.0)
    assert pair.kappa == pytest.approx(weighted_kappa([2, 4, 6], [2, 5, 5]))
    both = [(2, 2), (4, 5), (6, 5), (8, math.nan)]
    assert got.alpha == pytest.approx(krippendorff_alpha(both))


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
    ((_, _, pair),) = got.pairs
    assert (pair.equal, pair.kappa, got.alpha) == (1, 1, 1)
    assert pair.difference.mean == 0


def rubric(metric: str, lowest: float, highest: float) -> JudgeSpec:
    return JudgeSpec(
        name=metric, title="t", kind="rubric", system="s", prompt="p", lowest=lowest,
        highest=highest, metrics=({"name": metric, "label": metric},),
        reward={"metric": metric, "scale": highest},
    )  # fmt: skip
