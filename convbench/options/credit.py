"""Options of `credit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import RunDir


@dataclass(frozen=True)
class CreditOptions:
    """Give every policy turn of a run its credit: the column `advantage` of `turns`.

    A critic of `train sweet` sees the hidden reference and needs no judge; it may have been trained
    on another run. `branches` takes the mean reward of what step-dpo sampled at each turn.
    """

    EXAMPLES: ClassVar = (
        "convbench credit runs/latest/checkpoints/sweet",
        "convbench credit branches --judge rules",
        'convbench query "select * from turns where advantage is not null order by advantage"',
    )

    source: Annotated[str, Opt("A checkpoint of `train sweet`, or `branches`.", argument=True)]
    run: RunDir = None
    judge: Annotated[
        str | None, Opt("Judge whose rewards of branches count, where there are several.")
    ] = None
    raw: Annotated[
        bool,
        Opt(
            "A critic's log-ratios as they are, equation (3): without taking off what the base's "
            "own words would get in the same place."
        ),
    ] = False
