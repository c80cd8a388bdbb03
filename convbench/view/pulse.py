"""What a run that grows is doing now: counts, pace, cost, and how long it may still take."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from convbench.store.shard_attempts import shard_states
from convbench.store.shards import is_sharded
from convbench.store.tail import changed
from convbench.view.growing import Growing
from convbench.view.index import Index

RECENT_S = 120.0
"""A run whose files changed within so many seconds is said to grow."""
PACE_S = 300.0
"""Seconds over which the pace is taken."""


def pulse(growing: Growing) -> dict[str, Any]:
    """Take in what the runs got since; return the version of the index, each growing run, and
    where the index is being made, for how long, and how many conversations of each run answer
    until then."""
    version = growing.look()
    index = growing.index
    return {
        "version": version,
        "problem": growing.problem,
        "making_s": growing.making_s,
        "first": growing.partial,
        "growing": [
            found
            for number in range(0 if index.lost else len(index.runs))
            if (found := _growing(index, number)) is not None
        ],
    }


def _growing(index: Index, number: int) -> dict[str, Any] | None:
    run = index.runs[number]
    since_s = time.time() - changed(run)
    if since_s > RECENT_S:
        return None
    since = (datetime.now(UTC) - timedelta(seconds=PACE_S)).isoformat()
    found = index.one(
        "SELECT count(*) AS n, count(failure) AS failed, "
        "count(*) FILTER (WHERE ended >= ?) AS new, "
        "min(ended) FILTER (WHERE ended >= ?) AS first, "
        "sum(cost_usd) AS usd FROM conversations WHERE run_no = ?",
        [since, since, number],
    )
    judged = index.one(
        "SELECT count(*) AS n, count(*) FILTER (WHERE ended >= ?) AS new, sum(cost_usd) AS usd "
        "FROM raw.verdicts WHERE run_no = ?",
        [since, number],
    )
    splits = index.ask(
        "SELECT split, count(*) AS n FROM raw.examples WHERE run_no = ? GROUP BY split", [number]
    )
    wanted = run.manifest.planned({row["split"]: row["n"] for row in splits})
    pace = _pace(found["new"], found["first"])
    left = max(0, wanted - found["n"] + found["failed"])
    shards = shard_states(run.path) if is_sharded(run.path) else None
    line = None
    if shards is not None and shards.alive:
        line = f"{shards.done}/{shards.count} shards · {len(shards.alive)} in work"
    return {
        "shards": line,
        "run_no": number, "conversations": found["n"], "failed": found["failed"],
        "planned": wanted, "verdicts": judged["n"], "pace": pace,
        "judged_pace": judged["new"] / PACE_S * 60,
        "usd": None if found["usd"] is None else found["usd"] + (judged["usd"] or 0.0),
        "left_s": None if not pace or not left else left / pace * 60, "since_s": since_s,
    }  # fmt: skip


def _pace(new: int, first: str | None) -> float:
    """Return conversations a minute, since the first of the last few minutes."""
    if not new or first is None:
        return 0.0
    began = datetime.fromisoformat(first)
    began = began if began.tzinfo else began.replace(tzinfo=UTC)
    return 60 * new / max(10.0, (datetime.now(UTC) - began).total_seconds())
