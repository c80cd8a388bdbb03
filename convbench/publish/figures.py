"""The numbers of a card: means with standard errors clustered by group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.judge.model import LEFT_OUT, TEMPERATURE
from convbench.schema.example import SPLITS
from convbench.stats.estimate import estimate
from convbench.store import Run
from convbench.store.limits import interruptible
from convbench.store.tables import connect

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Figures:
    """What the card tells in numbers. Each list holds rows of a table."""

    total: int
    """Conversations, failed ones included."""
    failed: int
    """Conversations that failed."""
    splits: dict[str, int]
    """Conversations by split."""
    policy: list[dict[str, Any]]
    """split, temperature (None: not sent), accuracy, unparsed, thinking, reasoned, n."""
    rewards: list[dict[str, Any]]
    """judge, split, reward (Estimate), failed verdicts."""
    failures: list[tuple[str, int]]
    """Kind of failure, count."""
    cost_usd: float | None
    """Dollars of all policy and teacher calls; None where unknown."""
    tokens: tuple[int | None, int | None]
    """Prompt and completion tokens; None where unknown."""
    judge_usd: float | None
    """Dollars of all verdicts; None where unknown."""
    untempered: frozenset[str]
    """Fingerprints of judges whose model takes no temperature."""
    left_out: dict[str, tuple[str, ...]]
    """By speaker, the parameters that were not sent in any conversation."""
    cut: int
    """Conversations with a turn cut by max_tokens."""
    flagged: int
    """Conversations with findings of fidelity checks."""


@interruptible()
def figures(run: Run) -> Figures:
    """Count and average a run, for its card."""
    connection = connect([run])
    try:
        rows = _dicts(connection, "SELECT * FROM conversations")
        verdicts = _dicts(
            connection,
            "SELECT v.judge, c.split, c.group_id, v.reward, v.failure FROM verdicts v "
            "JOIN conversations c USING (conversation_id)",
        )
        spent, unknown = connection.execute(JUDGING, [paid([run])]).fetchall()[0]
    finally:
        connection.close()
    done = [row for row in rows if row["failure"] is None]
    return Figures(
        total=len(rows),
        failed=len(rows) - len(done),
        splits=_splits(rows),
        policy=[_policy(part) for part in _parts(done, "split", "temperature")],
        rewards=[_reward(part) for part in _parts(verdicts, "judge", "split")],
        failures=sorted(_count((r["failure"] or "").split(":")[0] for r in rows if r["failure"])
                        .items()),
        cost_usd=_sum(row["cost_usd"] for row in done),
        tokens=(_whole(_sum(row["prompt_tokens"] for row in done)),
                _whole(_sum(row["completion_tokens"] for row in done))),
        judge_usd=judging(spent, unknown),
        untempered=frozenset(v.fingerprint for v in run.verdicts()
                             if TEMPERATURE in v.details.get(LEFT_OUT, ())),
        left_out=_left_out(run),
        cut=sum(row["cut_turns"] > 0 for row in rows),
        flagged=sum(bool(row["flags"]) for row in rows),
    )  # fmt: skip


def _left_out(run: Run) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for talk in run.conversations():
        for speaker, sent in talk.sent.items():
            found.setdefault(speaker, set()).update(sent.left_out)
    return {speaker: tuple(sorted(names)) for speaker, names in found.items()}


JUDGING = """
SELECT sum(cost_usd) AS usd, bool_or(cost_usd IS NULL AND list_contains(?, fingerprint)) AS unknown
FROM raw.verdicts
"""
"""Dollars of verdicts, the newest of each (conversation, judge), and whether a model's are unknown
of the judges that ask one."""


def paid(runs: Iterable[Run]) -> list[str]:
    """Return the fingerprints of the judges that ask a model."""
    return [
        mark for run in runs for mark, spec in run.judge_specs().items() if spec.model is not None
    ]


def judging(usd: float | None, unknown: bool | None) -> float | None:
    """Return the dollars that JUDGING found; None where unknown."""
    return None if unknown else usd or 0.0


def _dicts(connection: DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
    return rows


def _parts(rows: list[dict[str, Any]], *keys: str) -> list[list[dict[str, Any]]]:
    parts: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    return [parts[key] for key in sorted(parts)]


def _splits(rows: list[dict[str, Any]]) -> dict[str, int]:
    counts = _count(str(row["split"]) for row in rows)
    return {name: counts[name] for name in SPLITS if name in counts}


def _policy(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    graded = [
        (row["group_id"], float(row["correct"])) for row in rows if row["correct"] is not None
    ]
    return {
        "split": rows[0]["split"],
        "temperature": rows[0]["temperature"],
        "n": len(rows),
        "accuracy": estimate(graded),
        "unparsed": sum(row["answer"] is None for row in rows) if graded else None,
        "thinking": estimate((row["group_id"], float(row["thinking"] or 0)) for row in rows),
        "reasoned": estimate((row["group_id"], float(row["reasoned"] or 0)) for row in rows),
    }


def _reward(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scored = [(row["group_id"], row["reward"]) for row in rows if row["reward"] is not None]
    return {
        "judge": rows[0]["judge"],
        "split": rows[0]["split"],
        "reward": estimate(scored),
        "failed": len(rows) - len(scored),
    }


def _count(values: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def _sum(values: Iterable[float | None]) -> float | None:
    """Sum; None where there is nothing or any is unknown."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    return math.fsum(numbers) if known and len(numbers) == len(known) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
