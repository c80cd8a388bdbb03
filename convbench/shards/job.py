"""The interface of launchers: the job that they start and the handle that they return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ShardJob:
    """Shards to start, with their command."""

    run: Path
    words: tuple[str, ...]
    """The command of a shard, without `convbench` and `--shard`."""
    count: int
    """Number of shards of the run."""
    indices: tuple[int, ...]
    """Indexes of the shards to work on."""
    at_once: int
    address: str | None = None
    """The address after the launcher's name in `--on`, if any."""
    template: Path | None = None
    """The user's own script or manifest."""

    def shard_command(self, index: object) -> list[str]:
        """Return the arguments of `convbench` for one shard: the job's words, then
        `--shard=INDEX/COUNT`."""
        return [*self.words, f"--shard={index}/{self.count}"]

    @property
    def logs_folder(self) -> Path:
        """Return the folder for the output of the processes, `RUN/shards/logs`.

        It need not exist.
        """
        return self.run / "shards" / "logs"


class StartedShards(Protocol):
    """Handle of started shards."""

    notes: list[str]
    """Notes for the user."""

    def poll_shards(self) -> int:
        """Start waiting shards if this process does that, and return how many run or wait."""
        ...

    def stop(self) -> str | None:
        """End the shards after Ctrl-C. Return a note for the user if they go on."""
        ...

    def close(self) -> None:
        """Release processes and connections."""
        ...


class Launcher(Protocol):
    """Starts shards with one scheduler."""

    def default_count(self, address: str | None) -> int:
        """Return the default number of shards at once."""
        ...

    def render_script(self, job: ShardJob) -> str:
        """Return the script, the manifest or the commands, which `--dry-run` shows."""
        ...

    def start_shards(self, job: ShardJob) -> StartedShards:
        """Start the shards. Raises ConvbenchError subclasses."""
        ...
