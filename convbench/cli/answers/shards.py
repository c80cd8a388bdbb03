"""What commands that work on shards and wait for batches have to tell."""

from __future__ import annotations

from convbench.cli.envelope import Answer


class BatchAnswer(Answer):
    """One batch at a provider."""

    batch: str | None
    """The provider's name of it."""
    wave: int
    """Which turn it is of."""
    model: str
    """Whose calls."""
    state: str
    """What the provider says, or how it ended."""
    calls: int
    """Calls in it."""
    done: int
    """Those answered."""
    failed: int
    """Those that failed or are missing."""
    problem: str | None
    """Why the provider was not heard."""


class BatchesAnswer(Answer):
    """`status`, `cancel`: a run's batches."""

    run: str
    """Its folder."""
    batches: list[BatchAnswer]
    """In the order they were sent."""


class WorkerAnswer(Answer):
    """One worker, as it says itself."""

    name: str
    """Its name."""
    host: str
    """Its machine."""
    doing: str
    """What it does."""
    shard: int | None
    """The shard it holds."""
    done: int
    """Conversations and verdicts that ended well."""
    failed: int
    """Those that failed."""
    calls: int
    """Calls answered."""
    rate: float
    """Conversations and verdicts a second."""
    usd: float
    """Dollars."""


class WorkAnswer(Answer):
    """`work`: how far the shards of a run are."""

    run: str
    """Its folder."""
    shards: int
    """Shards in all."""
    done: int
    """Those with nothing left to do."""
    waiting: int
    """Those that nobody holds."""
    held: list[int]
    """Those in work."""
    stopped: dict[int, str]
    """Those given back undone, with the reason."""
    given_up: list[int]
    """Those that lost too many workers."""
    usd: float
    """Dollars of what was given back."""
    cap_usd: float | None
    """Most dollars; null without a limit."""
    workers: list[WorkerAnswer]
    """All workers there were."""


class MergeAnswer(Answer):
    """`merge`: shards that were joined."""

    run: str
    """The run's folder."""
    shards: int
    """Shards there were."""
    records: dict[str, int]
    """Records by file."""
