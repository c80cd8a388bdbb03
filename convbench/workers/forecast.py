"""What work on shards will take: hours, bytes, dollars, and what the provider must bear.

All is arithmetic of counts, so that a billion conversations cost no more to foresee than ten. Rates
are those that an earlier run of the same policy measured, where there is one; else those of
`USUAL`, which docs/performance.md has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from convbench.errors import ConvbenchError
from convbench.store import Run, all_runs, shards
from convbench.workers.board import look

LOST_A_DAY = 1.0
"""Workers lost a day and worker that the hours count with: about what preemptible machines do."""
RESTART_S = 60.0
"""Seconds until a lost worker's successor works."""


@dataclass(frozen=True)
class Rates:
    """What a worker does."""

    calls_s: float
    """Calls a second, of one worker."""
    bytes_each: float
    """Bytes of a run's folder for each conversation, beside the text of its messages."""
    start_s: float
    """Seconds until a worker makes its first call."""
    of: str
    """Where this was measured."""


USUAL_LATENCY_S = 2.0
"""Seconds of a call of some hundred tokens, where nobody measured."""
MOST_CALLS_S = 800.0
"""Calls a second of one core, with journal and records."""
RECORD = 1200.0
"""Bytes of a conversation's records beside its text."""
TEXT = 4.4
"""Bytes of text for each token."""
COPIES = 2.2
"""Times that a reply stands in the folder: in the journal and in the conversation."""


def usual(concurrency: int) -> Rates:
    """Return the rates of a worker where nothing was measured."""
    calls = min(MOST_CALLS_S, concurrency / USUAL_LATENCY_S)
    return Rates(calls, RECORD, 5.0, f"assumed: {USUAL_LATENCY_S:g} s a call")


def measured(policy: str, runs: Iterable[Run], concurrency: int) -> Rates:
    """Return the rates of the newest of these runs that workers had with this policy."""
    found = usual(concurrency)
    for run in runs:
        m = run.manifest
        if m.cast[m.protocol.policy].model != policy or not shards.is_sharded(run.path):
            continue
        try:
            seen = [one for one in look(run).workers if one.calls >= 20 and one.seconds >= 1]
        except ConvbenchError:
            continue
        if seen:
            calls = sum(one.calls for one in seen) / sum(one.seconds for one in seen)
            found = replace(found, calls_s=calls, of=f"measured in {run.path}")
    return found


@dataclass(frozen=True)
class Forecast:
    """What the work will take."""

    shards: int
    workers: int
    conversations: int
    calls: int
    hours: float
    """Until the last shard is done, where no worker is lost."""
    hours_with_losses: float
    """The same where each worker is lost LOST_A_DAY times a day."""
    bytes: float
    """Of the run's folder."""
    usd: float | None
    calls_min: float
    """Calls a minute that the provider must bear."""
    tokens_min: float
    """Tokens a minute likewise."""
    rates: Rates
    bound: str
    """What the time hangs on."""


@dataclass(frozen=True)
class Foreseen:
    """A forecast, and what would be started."""

    forecast: Forecast
    on: str | None
    written: str | None
    """The script, manifest or command; None where this process works alone."""


def forecast(
    *,
    conversations: int,
    calls: int,
    prompt_tokens: int,
    reply_tokens: int,
    usd: float | None,
    count: int,
    workers: int,
    lease_s: float,
    rates: Rates,
    most_s: float | None = None,
) -> Forecast:
    """Return what the work will take: `count` shards, `most_s` calls a second at most in all."""
    workers = max(1, min(workers, count))
    alone = rates.calls_s
    capped = most_s is not None and most_s < alone * workers
    each = most_s / workers if capped and most_s is not None else alone
    shard_s = calls / count / each
    seconds = rates.start_s + makespan(count, workers, shard_s)
    lossy = rates.start_s + makespan(
        count, workers, shard_s, LOST_A_DAY / 86_400, RESTART_S, lease_s
    )
    tokens = prompt_tokens + reply_tokens
    size = conversations * rates.bytes_each + reply_tokens * TEXT * COPIES
    at_once = each * workers
    return Forecast(
        shards=count, workers=workers, conversations=conversations, calls=calls,
        hours=seconds / 3600, hours_with_losses=lossy / 3600, bytes=size, usd=usd,
        calls_min=60 * at_once, tokens_min=60 * at_once * tokens / max(1, calls), rates=rates,
        bound="--rate" if capped else "workers and their calls in flight",
    )  # fmt: skip


def makespan(
    count: int,
    workers: int,
    shard_s: float,
    losses_s: float = 0.0,
    restart_s: float = 0.0,
    lease_s: float = 0.0,
) -> float:
    """Return the seconds until `count` equal shards are done by workers that are each lost
    `losses_s` times a second, and have a successor after `restart_s`.

    What was done of a shard stays; it waits for `lease_s` until another takes it. While other
    shards are left that costs nobody anything, so only a loss in the last round makes all wait.
    """
    rounds = math.ceil(count / workers)
    if not losses_s:
        return rounds * shard_s
    slower = 1 + losses_s * restart_s
    # A lost worker leaves its part of a round to the others, and so do all of them in turn: the
    # rounds no longer end together, and what is left is shared out shard by shard.
    even = count * shard_s / workers * slower
    expected = losses_s * workers * shard_s
    late = (1 - math.exp(-expected)) * (lease_s + shard_s / 2)
    ragged = shard_s * (1 - 1 / workers) * (1 - math.exp(-losses_s * workers * even)) / 2
    return max(rounds * shard_s, even + ragged) + late


def earlier_runs() -> list[Run]:
    """Return the runs here, newest last; none where they cannot be read."""
    try:
        return all_runs()
    except ConvbenchError:
        return []
