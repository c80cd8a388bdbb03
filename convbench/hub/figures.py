"""The numbers of a card, from the frame of the report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convbench.reports.frame import ask, mean_of, read_rows
from convbench.schema.task import SPLITS
from convbench.stats.estimates import Estimate
from convbench.store import Run

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class PolicyFigures:
    """Means over the completed conversations of one split and temperature."""

    split: str
    temperature: float | None
    """None if none was sent."""
    n: int
    unparsed: int | None
    """Answers that could not be read; None if none can be graded."""
    accuracy: Estimate | None
    thinking: Estimate | None
    reasoned: Estimate | None


@dataclass(frozen=True)
class RewardFigures:
    """The rewards that one judge gave to conversations of one split."""

    judge: str
    split: str
    reward: Estimate | None
    failed: int
    """Verdicts without a reward."""


@dataclass(frozen=True)
class CardFigures:
    """The numbers of a dataset's card."""

    total: int
    """Conversations, failed ones included."""
    failed: int
    """Number of failed conversations."""
    splits: dict[str, int]
    """Conversations by split."""
    policy: list[PolicyFigures]
    rewards: list[RewardFigures]
    failures: list[tuple[str, int]]
    """Kind of failure, count."""
    cost_usd: float | None
    """Dollars of all policy and teacher calls; None if unknown."""
    tokens: tuple[int | None, int | None]
    """Prompt and completion tokens; None if unknown."""
    judge_usd: float | None
    """Dollars of all verdicts; None if unknown."""
    untempered: frozenset[str]
    """Fingerprints of judges whose model takes no temperature."""
    left_out: dict[str, tuple[str, ...]]
    """By speaker, the parameters that were not sent in any conversation."""
    cut: int
    """Conversations with a turn cut by max_tokens."""
    flagged: int
    """Conversations with findings of fidelity checks."""


COUNTS = """
SELECT count(*) AS total, count(failure) AS failed, count(*) FILTER (cut_turns > 0) AS cut,
  count(*) FILTER (len(flags) > 0) AS flagged
FROM conversations
"""
USED = """
SELECT cost_usd, prompt_tokens, completion_tokens FROM conversations WHERE failure IS NULL
"""
FAILURES = """
SELECT failure.kind AS kind, count(*) AS n FROM raw.conversations WHERE failure IS NOT NULL
GROUP BY 1 ORDER BY 1
"""
SENT = """
SELECT DISTINCT speaker, unnest(names.left_out) AS name FROM (
  SELECT unnest(map_keys(sent)) AS speaker, unnest(map_values(sent)) AS names
  FROM raw.conversations
) ORDER BY ALL
"""
JUDGING = """
SELECT fingerprint, fsum(cost_usd) AS usd, bool_or(cost_usd IS NULL) AS unknown,
  bool_or(list_contains(from_json(details->'$.left_out', '["VARCHAR"]'), 'temperature'))
    AS untempered
FROM raw.verdicts GROUP BY 1
"""


def card_figures(run: Run) -> CardFigures:
    """Return the counts and means of a run for its card, over all splits, which a
    report leaves out.

    Failed conversations count in the totals, but neither in the means nor in tokens and cost. A sum
    of which a part is unknown is None. Raise RunError for a damaged record.
    """
    rows, _ = read_rows([run])
    views = ("conversations", "verdicts")
    statements = (COUNTS, USED, FAILURES, SENT, JUDGING)
    counts, used, failures, sent, judging = ask([run], views, *statements)
    cost, prompt, completion = (_total(used[name]) for name in used)
    total, failed, cut, flagged = map(int, counts.iloc[0])
    paid = judging["fingerprint"].isin(paid_judges([run]))
    splits = rows["split"].value_counts()
    left_out = {speaker: tuple(own["name"]) for speaker, own in sent.groupby("speaker")}
    return CardFigures(
        total=total,
        failed=failed,
        splits={name: int(splits[name]) for name in SPLITS if name in splits},
        policy=_policy_figures(rows),
        rewards=_reward_figures(rows),
        failures=list(zip(failures["kind"], failures["n"], strict=True)),
        cost_usd=cost,
        tokens=(_as_int(prompt), _as_int(completion)),
        judge_usd=None if (paid & judging["unknown"]).any() else float(judging["usd"].sum()),
        untempered=frozenset(judging.loc[judging["untempered"].fillna(False), "fingerprint"]),
        left_out=left_out,
        cut=cut,
        flagged=flagged,
    )


def _policy_figures(rows: DataFrame) -> list[PolicyFigures]:
    """Return the means over the completed conversations of each split and temperature."""
    figures = []
    complete = rows[~rows["failed"]]
    for (split, sent), own in complete.groupby(["split", "temperature"], dropna=False):
        shares = own.assign(thinking=own["thinking"] / 100, reasoned=own["reasoned"] / 100)
        right, *means = [mean_of(shares, c) for c in ("correct", "thinking", "reasoned")]
        unread = None if right is None else int((own["unread"] > 0).sum())
        temperature = None if sent != sent else float(sent)
        figures.append(PolicyFigures(split, temperature, len(own), unread, right, *means))
    return figures


def _reward_figures(rows: DataFrame) -> list[RewardFigures]:
    """Return the means over what each judge gave to each split."""
    figures = []
    judges = [c.removesuffix("/failed") for c in rows if c.endswith("/failed")]
    for judge in sorted(judges):
        judged = rows[rows[f"{judge}/failed"].notna()]
        for split, own in judged.groupby("split"):
            mean = mean_of(own, f"{judge}/reward")
            failed = len(own) - (mean.n if mean else 0)
            figures.append(RewardFigures(judge, str(split), mean, failed))
    return figures


def paid_judges(runs: Iterable[Run]) -> list[str]:
    """Return the fingerprints of the judges of these runs that call a model; one that several runs
    have comes several times."""
    return [
        mark for run in runs for mark, spec in run.judge_specs().items() if spec.model is not None
    ]


def _total(column: Series[float]) -> float | None:
    """Return the sum of a column; None if it is empty or a part is unknown."""
    return None if column.empty or column.isna().any() else math.fsum(column)


def _as_int(value: float | None) -> int | None:
    return None if value is None else int(value)
