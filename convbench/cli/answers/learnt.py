"""What commands that train, compare and tabulate have to tell."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from convbench.cli.envelope import Answer


class RoundAnswer(Answer):
    """One round."""

    number: int
    """From 1."""
    checkpoint: str
    """What was trained."""
    evaluated: str | None
    """The run that evaluated it."""


class TrainAnswer(Answer):
    """`train`: a checkpoint, or one a round."""

    checkpoint: str | None
    """Its folder; null on a dry run, and where there are rounds."""
    recipe: str
    """The recipe's name."""
    launch: str | None
    """How it was launched."""
    processes: int | None
    """Processes that trained."""
    preview: list[str] = Field(default_factory=list)
    """What a dry run shows."""
    told: dict[str, str] = Field(default_factory=dict)
    """What the learner has to tell of the result."""
    rounds: list[RoundAnswer] = Field(default_factory=list)
    """Rounds, in order."""
    judge: str | None = None
    """The judge of the rounds."""


class FigureAnswer(Answer):
    """A number as it was computed, in the unit that is shown."""

    estimate: float
    """The number."""
    error: float | None = None
    """Its standard error."""
    interval: tuple[float, float] | None = None
    """Its 95% interval."""
    p: float | None = None
    """Two-sided p of no difference, adjusted as the table says; null for what is no difference."""
    n: int | None = None
    """Conversations, pairs or labels that it is over."""


class CellAnswer(Answer):
    """One cell of a table."""

    text: str
    """As printed."""
    error: str | None = None
    """Its standard error, as printed."""
    rank: int = 0
    """1 for the best of its column, 2 for the second best."""
    figure: FigureAnswer | None = None
    """The number behind the text."""


class TableAnswer(Answer):
    """One table."""

    label: str
    """Its short name."""
    caption: str
    """Its caption."""
    columns: list[str]
    """Heads."""
    rows: list[list[CellAnswer]]
    """Cells by row, in the order of the heads."""
    notes: list[str]
    """Footnotes."""


class PartAnswer(Answer):
    """One section of a report."""

    title: str
    """Its title."""
    facts: list[str]
    """What is compared."""
    tables: list[TableAnswer]
    """Its tables."""
    notes: list[str]
    """What is to be known of them."""


class ReportAnswer(Answer):
    """`report`, `patterns`, `demo`: tables, and the files that were written."""

    title: str
    """The report's title."""
    runs: list[str]
    """Runs it is about."""
    parts: list[PartAnswer]
    """Its sections."""
    files: list[str] = Field(default_factory=list)
    """Files that were written."""


class ExperimentStep(Answer):
    """One step of an experiment."""

    address: str
    """Its cell and what is done."""
    state: Literal["planned", "done", "failed", "waits"]
    """How it ended."""
    said: list[str] = Field(default_factory=list)
    """What was lost, or why it failed."""


class ExperimentAnswer(Answer):
    """`experiment`: its steps, and where its report lies."""

    experiment: str
    """Its name."""
    root: str
    """Folder of its runs."""
    steps: list[ExperimentStep]
    """What was done, or is left to do on a dry run."""
    left_out: list[str]
    """Steps that were not asked for and are not done."""
    missing: list[str]
    """What stands in the way, with the fix."""
    estimate: dict[str, float | int]
    """On a dry run: conversations, calls, verdicts, tokens, usd, steps, disk in bytes, hours."""
    files: list[str]
    """Files of the report."""
