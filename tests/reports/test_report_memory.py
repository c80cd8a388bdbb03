"""What a report holds of each conversation."""

from __future__ import annotations

import pytest

from convbench.reports.judges import _judge_agreement, _PanelScores, _ScoredConversation
from convbench.reports.measures import metric_measure
from convbench.reports.policies import Observation, Observations, VerdictScores
from convbench.stats.agreement import effective_votes
from convbench.stats.covariates import length_bias
from tests.support.memory import BLOCK, held_below


def rows_of(count: int) -> Observations:
    """Conversations, four about each question, that two judges scored."""
    return Observations(
        Observation(
            f"q{n // 4}#{n % 4}@1",
            f"g{n // 4}",
            1.0,
            failed=False,
            correct=True,
            unparsed=False,
            thinking=False,
            reasoned=False,
            flags=(),
            verdicts={
                judge: VerdictScores("f", {"overall": 5.0, "accuracy": score}, 0.5, failed=False)
                for judge, score in (("one", 4.0), ("two", 3.0))
            },
            conversation_id=f"c{n}",
            words=n,
        )
        for n in range(count)
    )


@pytest.mark.exhaustive
def test_rows_and_their_means_take_some_bytes_of_each_conversation() -> None:
    def mean(count: int) -> None:
        rows = rows_of(count)
        found = metric_measure("two", "accuracy").mean_over(rows)
        assert found is not None
        assert (found.mean, found.n, found.groups) == (3.0, count, count // 4)

    held_below(80, mean, BLOCK + 400, 2 * BLOCK + 400)


@pytest.mark.exhaustive
def test_what_judges_say_together_takes_some_bytes_of_each_conversation() -> None:
    def compared(count: int) -> None:
        said = _PanelScores(("one", "two"), (
            _ScoredConversation(f"g{n // 4}", n, "gpt", {"one": n % 7 / 7, "two": n % 9 / 9}, None)
            for n in range(count)
        ))  # fmt: skip
        assert _judge_agreement(said, "one", "two").common == count
        worth = effective_votes((one.group, list(one.scores.values())) for one in said)
        assert worth is not None
        assert worth.groups == count // 4
        longer = length_bias((o.group, o.words, o.scores["one"]) for o in said if o.words)
        assert longer is not None

    held_below(200, compared, BLOCK + 400, 3 * BLOCK + 400)  # some twenty numbers, eight bytes each
