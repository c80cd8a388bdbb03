"""Shards one after another, in this process's own time."""

from __future__ import annotations

import subprocess
import sys

from convbench.shards.job import ShardJob


class OneByOne:
    """The shards of a job, done when asked how many are left."""

    def __init__(self, job: ShardJob) -> None:
        self.notes: list[str] = []
        self._job, self._waiting = job, list(job.indices)

    def poll_shards(self) -> int:
        """Do the next shard; return how many are left."""
        if self._waiting:
            line = [
                sys.executable,
                "-m",
                "convbench",
                *self._job.shard_command(self._waiting.pop(0)),
            ]
            subprocess.run(line, check=True)
        return len(self._waiting)

    def stop(self) -> str | None:
        """Do no more of them."""
        self._waiting.clear()
        return None

    def close(self) -> None:
        """Nothing is left."""


class OneByOneLauncher:
    """Who starts them."""

    def default_count(self, address: str | None) -> int:
        """Return how many shards there are where nobody says."""
        return 1

    def render_script(self, job: ShardJob) -> str:
        """Return what would be started."""
        return f"{job.count} shards, one by one\n"

    def start_shards(self, job: ShardJob) -> OneByOne:
        """Begin."""
        return OneByOne(job)
