"""What commands that wait for batches and join shards have to tell."""

from __future__ import annotations

from pydantic import Field

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


class ShardsAnswer(Answer):
    """How far the shards of a run are."""

    count: int
    """Shards in all."""
    done: int
    """Those with nothing left to do."""
    working: list[int]
    """Those that a process works on, or was killed at."""
    left: dict[int, str]
    """Those that nobody works on, with why something is left to do."""


class BatchesAnswer(Answer):
    """`status`, `cancel`: a run's batches, and its shards."""

    run: str
    """Its folder."""
    batches: list[BatchAnswer]
    """In the order they were sent."""
    shards: ShardsAnswer | None = Field(default=None, exclude_if=lambda states: states is None)
    """How far its shards are; absent where it has none, or all are done."""


class MergeAnswer(Answer):
    """`merge`: shards that were joined."""

    run: str
    """The run's folder."""
    shards: int
    """Shards there were."""
    records: dict[str, int]
    """Records by file."""
