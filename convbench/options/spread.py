"""Options for work on shards."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from convbench.errors import UsageError
from convbench.options.declare import Opt
from convbench.options.shared import MOST_RATE, CallOptions

SHARDS = "Shards"
"""Group of these options in `--help`."""


@dataclass(frozen=True)
class ShardOptions:
    """Options for shards; None leaves the run as it is."""

    shards: Annotated[
        int | None,
        Opt(
            "Spread the run over N folders, by question; each is an ordinary run.",
            metavar="N",
            least=1,
            most=100_000,
            panel=SHARDS,
        ),
    ] = None
    on: Annotated[
        str | None,
        Opt(
            "Where shards are worked on: local:4, ray, ray:ADDRESS, slurm:16, k8s:16. Without it "
            "this process works on one after the other.",
            metavar="WHERE",
            panel=SHARDS,
        ),
    ] = None
    workers: Annotated[
        int | None,
        Opt(
            "Shards at once (local, ray: one per core; slurm, k8s: 4).",
            metavar="N",
            least=1,
            most=100_000,
            panel=SHARDS,
        ),
    ] = None
    template: Annotated[
        Path | None,
        Opt(
            "Template of your own for the script of --on slurm or the manifest of --on k8s.",
            metavar="FILE",
            panel=SHARDS,
            own_file_only=True,
        ),
    ] = None
    rate: Annotated[
        float | None,
        Opt(
            "Maximum calls a second to one endpoint, over all shards.",
            metavar="N",
            least=0.001,
            most=MOST_RATE,
            panel=SHARDS,
        ),
    ] = None

    @property
    def is_requested(self) -> bool:
        """Return True if `shards` or `on` is set; the other options alone do not ask for shards."""
        return self.shards is not None or self.on is not None


Shard = Annotated[
    str | None,
    Opt(
        "Work on shard I of the N that the run has, in this process: what a scheduler of your own "
        "starts, as often as it likes.",
        metavar="I/N",
        panel=SHARDS,
    ),
]
"""`--shard`."""


def shard_index(typed: str) -> tuple[int, int]:
    """Return (index, count) of `--shard I/N`. Raises UsageError if it names no shard."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", typed, re.ASCII)
    if match is None or not int(match[1]) < int(match[2]):
        raise UsageError(f"--shard {typed[:40]}: expected I/N, I from 0 to N-1: 7/200")
    return int(match[1]), int(match[2])


def with_pace(calls: CallOptions, rate: float | None) -> CallOptions:
    """Return a copy of call options with a limit of `rate` calls a second.

    They are returned unchanged if `rate` is None or they have a limit.
    """
    if rate is None or calls.pace is not None:
        return calls
    from convbench.engine.limiter import RatePacer

    return replace(calls, pace=RatePacer(rate))


def parse_addresses(text: str | None) -> tuple[str, ...]:
    """Return the addresses in a value of `--api-base`, which are separated by commas; none for
    None."""
    return tuple(address for address in (text or "").split(",") if address)


def first_address(calls: CallOptions) -> CallOptions:
    """Return a copy of call options with only the first of several addresses, for work in one
    process.

    With one address or none they are returned unchanged.
    """
    many = parse_addresses(calls.api_base)
    return replace(calls, api_base=many[0]) if len(many) > 1 else calls
