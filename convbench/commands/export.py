"""`convbench export`: write a run in another trainer's format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, quoted
from convbench.options.declare import Opt
from convbench.options.shared import MOST_EACH, SEEDS, RunDir, SpecOptions


@dataclass(frozen=True)
class ExportOptions:
    """Write a run in another trainer's format, one file per split."""

    EXAMPLES: ClassVar = (
        "convbench export --to trl --recipe swift",
        "convbench export --to openai --recipe refit --scale 3",
        "convbench export --to trl --recipe dpo",
    )

    to: Annotated[Literal["trl", "openai", "sharegpt", "ms-swift", "atif"], Opt("The format.")]
    run: RunDir = None
    recipe: Annotated[
        str | None,
        Opt("Weigh or pair the train split as this recipe does: a name or a file, as for `train`."),
    ] = None
    scale: Annotated[
        float | None,
        Opt(
            "Repeat whole conversations floor or ceil of scale * weight times.",
            least=1e-6,
            most=MOST_EACH,
        ),
    ] = None
    judge: Annotated[str | None, Opt("Judge whose reward weighs, where there are several.")] = None
    seed: Annotated[int, Opt("Seed of the rounding.", least=SEEDS[0], most=SEEDS[1])] = 0
    flagged: Annotated[
        Literal["drop", "keep"] | None,
        Opt(
            "What to do with conversations of the train split in which another speaker gave the "
            "answer away, left its role or said nothing (the recipe's choice, or drop)."
        ),
    ] = None
    out: Annotated[
        Path | None,
        Opt("Folder; without it RUN/export/FORMAT, and RECIPE in it.", metavar="DIR"),
    ] = None
    specs: SpecOptions = SpecOptions()


class ExportAnswer(Answer):
    """`export`: files in another trainer's format."""

    files: dict[str, str]
    """File by split."""
    rows: dict[str, int]
    """Rows by split."""
    failed: int
    """Number of failed conversations, which are left out."""
    flagged: int
    """Number of flagged conversations, which are left out."""
    left_out: int
    """Number of conversations of weight 0 or less, or without a verdict, which are left out."""


def run(options: ExportOptions, context: RunContext) -> ExportAnswer:
    """Write a run in another trainer's format, one file for each split, and return their paths and
    rows.

    What is left out becomes notes.
    """
    from convbench.learn.export import export_run
    from convbench.store import find_run

    exported = export_run(
        find_run(options.run),
        options.to,
        options.out,
        recipe=options.recipe,
        scale=options.scale,
        judge=options.judge,
        seed=options.seed,
        flagged=options.flagged,
        specs=options.specs,
    )
    left_out = exported.left_out
    if left_out["failed"]:
        context.add_note(f"{left_out['failed']} failed conversations were omitted")
    if left_out["flagged"]:
        context.add_note(
            f"{left_out['flagged']} flagged conversations were omitted; to keep them: --flagged "
            "keep"
        )
    if left_out["unweighted"]:
        context.add_note(
            f"{left_out['unweighted']} conversations of weight 0 or without a verdict were omitted"
        )
    for text in exported.notes:
        context.add_note(text)
    return ExportAnswer(
        files={split: path_text(path) for split, path in exported.files.items()},
        rows=exported.rows,
        failed=left_out["failed"],
        flagged=left_out["flagged"],
        left_out=left_out["negative"] + left_out["unweighted"],
    )


def show(answer: ExportAnswer) -> None:
    """Print one line for each split: its number of rows and its file."""
    for split, file in answer.files.items():
        print_fact(split, f"{answer.rows[split]} rows in {quoted(file)}")


export_command = Command(run, show)
