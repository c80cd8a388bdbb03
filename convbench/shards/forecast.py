"""Forecast work on shards: hours, bytes, dollars, and the load on the provider.

It is computed from counts alone, so that a billion conversations take no longer than ten. Rates are
measured from an earlier run of the same policy if there is one; else those
assumed below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from convbench.errors import ConvbenchError
from convbench.rollout.calls import JOURNAL_FILE
from convbench.store import Run, all_runs
from convbench.store.jsonl import numbered_lines
from convbench.util.usage_estimate import Tokens

LOST_A_DAY = 1.0
"""Assumed losses per day of each running process: about what preemptible machines have."""
RESTART_S = 60.0
"""Seconds until the scheduler has restarted a lost process."""
START_S = 5.0
"""Seconds until a process makes its first call."""
LATENCY_S = 2.0
"""Seconds of a call of some hundred tokens, if none was measured."""
MOST_CALLS_S = 800.0
"""Largest number of calls a second that one core handles, with journal and records."""
RECORD = 1200.0
"""Bytes of a conversation's records without its text."""
TEXT = 4.4
"""Bytes of text per token."""
COPIES = 2.2
"""Copies of a reply in the folder: in the journal and in the conversation."""
LOOKED_AT = 4
"""Shards of an earlier run that are read to measure its rate."""


@dataclass(frozen=True)
class CallRates:
    """Throughput of one process."""

    calls_s: float
    """Calls a second."""
    source: str
    """Whether it is assumed, or from which run it was measured."""


def assumed_rates(concurrency: int) -> CallRates:
    """Return the assumed rates for this many calls in flight: 2 s a call, at most 800 calls a
    second."""
    calls = min(MOST_CALLS_S, concurrency / LATENCY_S)
    return CallRates(calls, f"assumed: {LATENCY_S:g} s a call")


def measured_rates(policy: str, runs: Iterable[Run], concurrency: int) -> CallRates:
    """Return the rates measured from the first of these runs with this policy and enough calls in
    shards.

    Only the first four shards of a run are read, and of these those with 20 calls over at least a
    second. Runs that cannot be read are skipped; if none fits, the rates are `assumed_rates`.
    """
    rates = assumed_rates(concurrency)
    for run in runs:
        m = run.manifest
        if m.cast[m.protocol.policy].model != policy:
            continue
        try:
            pairs = [_calls_and_seconds(shard) for shard in islice(run.shards(), LOOKED_AT)]
        except ConvbenchError:
            continue
        useful = [(calls, seconds) for calls, seconds in pairs if calls >= 20 and seconds >= 1]
        if useful:
            calls_s = sum(calls for calls, _ in useful) / sum(seconds for _, seconds in useful)
            return replace(rates, calls_s=calls_s, source=f"measured in {run.path}")
    return rates


def _calls_and_seconds(shard: Run) -> tuple[int, float]:
    """Return (calls for a shard's conversations, seconds between the first and the last end)."""
    calls = sum(
        b'"key":"judge/' not in line for _, line in numbered_lines(shard.path / JOURNAL_FILE)
    )
    ends = sorted(c.ended for c in shard.conversations() if c.ended)
    if len(ends) < 2:
        return 0, 0.0
    seconds = datetime.fromisoformat(ends[-1]) - datetime.fromisoformat(ends[0])
    return calls, seconds.total_seconds()


@dataclass(frozen=True)
class ShardForecast:
    """What the work would take, and the script that would start it."""

    shards: int
    at_once: int
    conversations: int
    calls: int
    hours: float
    """Hours until the last shard is done if no process is lost."""
    hours_with_losses: float
    """Hours if each process is lost LOST_A_DAY times a day."""
    bytes: float
    """Bytes of the run's folder."""
    usd: float | None
    calls_min: float
    """Calls a minute that the provider must accept."""
    tokens_min: float
    """Tokens a minute that the provider must accept."""
    rates: CallRates
    on: str | None = None
    """The value of `--on`; None for this process."""
    script: str | None = None
    """The script, manifest or command; None for this process."""


def forecast_shards(
    estimate: Tokens,
    *,
    count: int,
    at_once: int,
    rates: CallRates,
    most_s: float | None = None,
    on: str | None = None,
    script: str | None = None,
) -> ShardForecast:
    """Return the forecast for `count` shards, `at_once` (1 to `count`) of them in parallel.

    `most_s` is the largest number of calls a second of all processes together. `on` and `script`
    are only copied into the result.
    """
    at_once = max(1, min(at_once, count))
    each = rates.calls_s if most_s is None else min(rates.calls_s, most_s / at_once)
    conversations, calls = estimate.conversations, estimate.calls
    shard_s = START_S + calls / count / each
    return ShardForecast(
        shards=count,
        at_once=at_once,
        conversations=conversations,
        calls=calls,
        hours=makespan(count, at_once, shard_s) / 3600,
        hours_with_losses=makespan(count, at_once, shard_s, LOST_A_DAY / 86_400, RESTART_S) / 3600,
        bytes=conversations * RECORD + estimate.reply_tokens * TEXT * COPIES,
        usd=estimate.usd,
        calls_min=60 * each * at_once,
        tokens_min=60 * each * at_once * estimate.tokens / max(1, calls),
        rates=rates,
        on=on,
        script=script,
    )


def makespan(
    count: int, at_once: int, shard_s: float, losses_s: float = 0.0, restart_s: float = 0.0
) -> float:
    """Return the expected seconds until `count` equal shards are done, `at_once` in parallel.

    Each process is lost `losses_s` times a second and restarted after `restart_s` seconds; finished
    work of a shard stays. A loss delays only its own shard, so the workers no longer change shards
    at the same time, and the end waits for the last one. `count` is at least 1: with losses, 0
    shards give more than 0 seconds.
    """
    rounds = math.ceil(count / at_once)
    if not losses_s:
        return rounds * shard_s
    longer = shard_s * (1 + losses_s * restart_s)
    even = count * longer / at_once
    lost = 1 - math.exp(-losses_s * at_once * even)  # probability of any loss
    ragged = longer * (1 - 1 / at_once) * lost / 2
    last = restart_s * (1 - math.exp(-losses_s * at_once * shard_s))
    return max(rounds * shard_s, even + ragged) + last


def earlier_runs() -> list[Run]:
    """Return the runs in `runs`, newest first; an empty list without the folder, or if one run
    cannot be opened. Raises PermissionError if the folder cannot be listed."""
    try:
        return all_runs()[::-1]
    except ConvbenchError:
        return []
