"""Options of `gold`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import WHERE, Opt
from convbench.options.shared import MOST_EACH, SEEDS
from convbench.words import DrawBy, SplitChoice


@dataclass(frozen=True)
class GoldOptions:
    """Have people label a sample, drawn with known probabilities, to correct a judge.

    `gold RUN --draw N` fills the queue that `convbench view RUN` shows under Label; `gold export
    FILE` and `gold import FILE` have it labelled elsewhere; `gold RUN` alone says how much is done.
    `convbench report RUN --gold` reads the labels.
    """

    EXAMPLES: ClassVar = (
        "convbench gold runs/latest --draw 100",
        "convbench gold --draw 60 --by optimal --raters 2",
        "convbench gold export queue.jsonl     then fill it in:",
        "convbench gold import queue.jsonl",
    )

    words: Annotated[
        tuple[str, ...],
        Opt(
            "A run (without it the newest), or export FILE, or import FILE.",
            metavar="RUN | export FILE | import FILE", argument=True,
        ),
    ] = ()  # fmt: skip
    draw: Annotated[
        int | None,
        Opt(
            "Conversations to draw, spread over the run and its evaluations.",
            least=1,
            most=MOST_EACH,
        ),
    ] = None
    by: Annotated[
        DrawBy,
        Opt(
            "All alike; spread evenly over the judge's scores; the likelier the better the score; "
            "or where people are likely to disagree with the judge."
        ),
    ] = "uniform"
    raters: Annotated[int, Opt("People to label each conversation.", least=1, most=20)] = 1
    judge: Annotated[str | None, Opt("Judge to correct, where there are several.")] = None
    policy: Annotated[
        tuple[str, ...],
        Opt(
            "Draw from this policy alone (base, or an evaluation's folder); repeat it for several."
        ),
    ] = ()
    split: Annotated[SplitChoice, Opt("Split whose conversations are drawn.")] = "test"
    seed: Annotated[
        int | None,
        Opt("Seed of the draw; without it each draw has its own.", least=SEEDS[0], most=SEEDS[1]),
    ] = None
    rater: Annotated[str, Opt("Person whose queue is exported.")] = ""
    run: Annotated[
        Path | None,
        Opt("Run directory; without it the newest run.", "--run", "DIR", WHERE, names="runs"),
    ] = None
