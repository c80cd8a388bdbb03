"""What a scheduler is asked to start, and what it says of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ShardJob:
    """What is to be started."""

    run: Path
    words: tuple[str, ...]
    """The command of a shard without `convbench` and its `--shard`."""
    count: int
    """Shards of the run."""
    indices: tuple[int, ...]
    """Those to be worked on."""
    at_once: int
    address: str | None = None
    """What was said after the name's colon, where that is no number."""
    template: Path | None = None
    """The user's own script or manifest."""

    def command(self, index: object) -> list[str]:
        """Return what follows `convbench` for one shard."""
        return [*self.words, f"--shard={index}/{self.count}"]

    @property
    def logs(self) -> Path:
        """The folder for what processes print."""
        return self.run / "shards" / "logs"


class Started(Protocol):
    """Shards that were started."""

    notes: list[str]
    """What to know of them."""

    def alive(self) -> int:
        """Return how many run or wait to begin."""
        ...

    def stop(self) -> str | None:
        """End them after Ctrl-C; return what to know where they go on."""
        ...

    def close(self) -> None:
        """Release what holds them."""
        ...


class Launcher(Protocol):
    """A scheduler."""

    def default_count(self, address: str | None) -> int:
        """Return how many shards are worked on at once where nobody says."""
        ...

    def script(self, job: ShardJob) -> str:
        """Return what `--dry-run` shows: the script, the manifest or the commands."""
        ...

    def start(self, job: ShardJob) -> Started:
        """Start the shards. Raises ConvbenchError subclasses."""
        ...
