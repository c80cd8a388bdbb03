"""Options of work that is spread over shards and workers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import MOST_RATE, Asking, CallOptions, RunArgument, SpecOptions

WORKERS = "Shards and workers"
"""Group of these options in `--help`."""


@dataclass(frozen=True)
class Spread:
    """What a user says of shards and workers; None leaves the run as it is."""

    shards: Annotated[
        int | None,
        Opt(
            "Spread the run over N folders, by question, for several workers.",
            metavar="N", least=1, most=100_000, panel=WORKERS,
        ),
    ] = None  # fmt: skip
    """Shards of the run."""
    on: Annotated[
        str | None,
        Opt(
            "Where workers are started: local:4, ray, ray:ADDRESS, slurm, k8s. Without it this "
            "process works alone.",
            metavar="WHERE", panel=WORKERS,
        ),
    ] = None  # fmt: skip
    """Where workers are started."""
    workers: Annotated[
        int | None,
        Opt(
            "Workers to start (local, ray: one per core; slurm, k8s: 4).",
            metavar="N", least=1, most=100_000, panel=WORKERS,
        ),
    ] = None  # fmt: skip
    """Workers to start."""
    template: Annotated[
        Path | None,
        Opt(
            "Template of your own for the script of --on slurm or the manifest of --on k8s.",
            metavar="FILE", panel=WORKERS, own_file_only=True,
        ),
    ] = None  # fmt: skip
    """Template of a script or manifest."""
    lease: Annotated[
        float | None,
        Opt(
            "Seconds without a sign of life after which a worker's shard is taken over (120).",
            metavar="SECONDS", least=0.5, most=86_400, panel=WORKERS,
        ),
    ] = None  # fmt: skip
    """Seconds of silence after which a shard is taken over."""
    rate: Annotated[
        float | None,
        Opt(
            "Most calls a second that all workers of a machine send to one endpoint.",
            metavar="N", least=0.001, most=MOST_RATE, panel=WORKERS,
        ),
    ] = None  # fmt: skip
    """Most calls a second of a machine to one endpoint."""

    @property
    def said(self) -> bool:
        """Whether the user asked for shards or workers."""
        return self.shards is not None or self.on is not None


def addresses(said: str | None) -> tuple[str, ...]:
    """Return the addresses that `--api-base` names, one or several with commas between."""
    return tuple(one for one in (said or "").split(",") if one)


def first_address(calls: CallOptions) -> CallOptions:
    """Return options with the first of several addresses, for what one process does."""
    many = addresses(calls.api_base)
    return replace(calls, api_base=many[0]) if len(many) > 1 else calls


@dataclass(frozen=True)
class WorkOptions(Asking):
    """Work on the shards of a run until nothing is left to do: claim one, make its conversations
    and verdicts, hand it back. Start as many as you like, wherever the run's folder can be seen."""

    EXAMPLES: ClassVar = (
        "convbench work runs/big",
        "convbench work runs/big --list",
        "srun convbench work runs/big",
    )

    run: RunArgument = None
    listing: Annotated[bool, Opt("Show the progress of the shards; work on none.", "--list")] = (
        False
    )
    rate: Annotated[
        float | None,
        Opt(
            "Most calls a second that all workers of a machine send to one endpoint.",
            metavar="N", least=0.001, most=MOST_RATE, panel=WORKERS,
        ),
    ] = None  # fmt: skip
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()


@dataclass(frozen=True)
class MergeOptions:
    """Make one folder of a run and its shards, as if one process had worked."""

    EXAMPLES: ClassVar = ("convbench merge", "convbench merge runs/big")

    run: RunArgument = None
