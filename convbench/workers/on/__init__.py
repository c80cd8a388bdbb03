"""Where workers are started: one file a place. A launcher starts `convbench work RUN`, tells who is
still there, and ends them; it knows nothing of shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from convbench.errors import UsageError

PLACES = ("local", "ray", "slurm", "k8s")


@dataclass(frozen=True)
class Crew:
    """What a launcher is to start."""

    run: Path
    words: tuple[str, ...]
    """What follows `convbench work`."""
    count: int
    """Workers."""
    address: str | None = None
    """What was said after the place's colon, where that is no number."""
    template: Path | None = None
    """The user's own script or manifest."""
    lease_s: float = 120.0
    """Seconds of silence after which a shard is taken over."""

    def logs(self) -> Path:
        """Return the folder for what workers print."""
        return self.run / "shards" / "logs"


class Team(Protocol):
    """Workers that were started."""

    told: Sequence[str]
    """What to know of them."""

    def alive(self) -> int:
        """Return how many are there, or wait to begin."""
        ...

    def stop(self) -> list[str]:
        """End them after Ctrl-C, or let them be; return what to know."""
        ...

    def close(self) -> None:
        """Release what holds them."""
        ...


class Launcher(Protocol):
    """A place's module."""

    def usual(self, place: Place) -> int:
        """Return how many workers it starts where nobody says."""
        ...

    def written(self, crew: Crew) -> str:
        """Return what `--dry-run` shows: the script, manifest or commands."""
        ...

    def start(self, crew: Crew) -> Team:
        """Start the workers. Raises ConvbenchError subclasses."""
        ...


@dataclass(frozen=True)
class Place:
    """What `--on` says."""

    name: str
    count: int | None = None
    address: str | None = None

    @property
    def launcher(self) -> Launcher:
        """Its module."""
        return cast(Launcher, import_module(f"convbench.workers.on.{self.name}"))


def place_of(said: str) -> Place:
    """Read `--on`: a place, and after a colon how many workers, or an address. SpecError for
    anything else."""
    name, colon, rest = said.partition(":")
    if name not in PLACES or (colon and not rest):
        raise UsageError(
            f"--on {said[:80]}: expected one of {', '.join(PLACES)}, with a number of workers or "
            "an address after a colon where it takes one: local:4, ray:10.0.0.1:6379, slurm:16"
        )
    if rest.isascii() and rest.isdigit() and len(rest) < 7:
        if int(rest) < 1:
            raise UsageError(f"--on {said}: expected at least 1 worker")
        return Place(name, int(rest))
    if rest and name != "ray":
        raise UsageError(f"--on {said[:80]}: expected a number of workers after the colon")
    return Place(name, None, rest or None)
