"""Options of `plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import WHERE, Opt
from convbench.options.shared import SpecOptions

MOST_TOKENS = 10_000_000
"""Longest row."""


def _check_cards(text: str) -> str:
    from convbench.models.devices import parse_cards

    parse_cards(text)
    return text


@dataclass(frozen=True)
class PlanOptions:
    """Show what a training takes of memory and time on given cards, and how it is placed to fit.

    Arithmetic over the model's config.json: nothing is loaded, sent or written. The exit code is 1
    where nothing fits.
    """

    EXAMPLES: ClassVar = (
        "convbench plan swift --model meta-llama/Llama-3.1-8B-Instruct --cards 1x80 --host 256",
        "convbench plan sweet --model ./Llama-3.1-8B --cards 8x80 --host 1000 --tokens 16384",
        "convbench plan swift --run runs/arc --cards 2x80 --price 3.5",
    )

    recipe: Annotated[
        str,
        Opt(
            "Recipe: a name from `convbench list recipes`, or a file.",
            argument=True,
            names="recipes",
        ),
    ]
    model: Annotated[
        str | None,
        Opt(
            "Model to start from: a folder with config.json will do, or a Hub id; without it the "
            "recipe's, or the policy of --run.",
            metavar="REF",
            names="policies",
        ),
    ] = None
    cards: Annotated[
        str | None,
        Opt(
            "Number of cards and GB of each; without it those of this machine.",
            metavar="COUNTxGB",
            parse=_check_cards,
        ),
    ] = None
    host: Annotated[
        float | None,
        Opt(
            "GB of the machine's own memory; without it that of this machine.",
            metavar="GB",
            least=1,
            most=1_000_000,
        ),
    ] = None
    run: Annotated[
        Path | None,
        Opt(
            "Run whose recorded conversations say how long the rows are, and how many.",
            "--run",
            "DIR",
            WHERE,
            names="runs",
            either=True,
        ),
    ] = None
    tokens: Annotated[
        int | None,
        Opt(
            "Tokens of the longest row; without it and --run 2,048.",
            metavar="N",
            least=1,
            most=MOST_TOKENS,
        ),
    ] = None
    launch: Annotated[
        str | None,
        Opt(
            "Keep to this launch: none, ddp, zero0, zero2, zero3, fsdp; without it the recipe's "
            "comes first, then what divides more.",
            names="launch",
        ),
    ] = None
    price: Annotated[
        float | None,
        Opt("Dollars that one card costs an hour.", metavar="USD", least=0, most=1_000_000),
    ] = None
    specs: SpecOptions = SpecOptions()
