"""Classes that the Python API returns: runs, checkpoints, dry runs and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convbench import store
from convbench.api.frames import Frame, to_frame
from convbench.reports.report import ReportResult
from convbench.reports.write import render_text
from convbench.schema import RunManifest
from convbench.store.checkpoint import Checkpoint as Folder
from convbench.store.query import run_query

if TYPE_CHECKING:
    from pandas import DataFrame


class Run:
    """A run: its conversations, verdicts, evaluations and checkpoints."""

    def __init__(self, opened: store.Run) -> None:
        self._run = opened

    @property
    def path(self) -> Path:
        """Return the folder of the run."""
        return self._run.path

    @property
    def manifest(self) -> RunManifest:
        """Return the manifest: task, protocol, models and settings of the run."""
        return self._run.manifest

    @property
    def conversations(self) -> DataFrame:
        """Return a pandas frame with one row for the newest conversation of every key, failed ones
        included.

        Columns are those of the table `conversations` of `query`.
        """
        return self.table("conversations")

    @property
    def turns(self) -> DataFrame:
        """Return a pandas frame with one row for each turn of every speaker; columns as in
        `query`."""
        return self.table("turns")

    @property
    def verdicts(self) -> DataFrame:
        """Return a pandas frame with the newest verdict for each conversation and judge, failures
        included."""
        return self.table("verdicts")

    @property
    def examples(self) -> DataFrame:
        """Return a pandas frame with one row for each question; the right answer is in the column
        `gold`."""
        return self.table("examples")

    def table(self, name: str, frame: Frame = "pandas") -> Any:
        """Return a table of this run as a data frame, by any name that `query` knows, such as
        `turns` or `comparisons`.

        Raises QueryError for an unknown table; SpecError for an unknown kind of frame.
        """
        return self.query(f"from {name}", frame)

    def query(self, sql: str, frame: Frame = "pandas") -> Any:
        """Return the result of one SELECT over this run as a data frame, of pandas unless `frame`
        says otherwise.

        Raises QueryError for invalid SQL, one that does more than read, or one that takes longer
        than 30 s.
        """
        return query_frame(sql, [self], frame)

    @property
    def evaluations(self) -> list[Run]:
        """Return the child runs, other policies on the same questions, sorted by folder name; empty
        if none."""
        return [Run(child) for child in self._run.child_runs()]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """Return the finished checkpoints in the run's folder, sorted by name; empty if none."""
        folders = sorted(self._run.checkpoints_folder.glob("*"))
        return [Checkpoint(folder) for folder in folders if Folder(folder).is_finished]

    def __repr__(self) -> str:
        old = self.manifest
        policy = old.cast[old.protocol.policy].model
        return (
            f"Run({str(self.path)!r}: {old.task.name}, {old.protocol.name}, {old.mode}, "
            f"policy {policy})"
        )

    def _repr_html_(self) -> str:
        counts = self.query(
            "select count(*) as conversations, count(failure) as failed, avg(correct::int) as "
            "accuracy from conversations"
        )
        return f"<p>{escape(repr(self))}</p>{counts.to_html(index=False)}"


def query_frame(sql: str, runs: list[Run], kind: Frame = "pandas") -> Any:
    """Return the result of one SELECT over the tables of these runs together as a data frame.

    Raises QueryError as `Run.query` does, SpecError for an unknown kind of frame, RunError for a
    damaged run.
    """
    return to_frame(run_query(sql, [run._run for run in runs]).arrow, kind)


@dataclass(frozen=True)
class Checkpoint:
    """A trained checkpoint."""

    path: Path

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Return the resolved recipe by key, empty without a `recipe.yaml`.

        Raises RunError for a damaged one.
        """
        return Folder(self.path).recipe

    @property
    def summary(self) -> Mapping[str, Any]:
        """Return what the training wrote about itself, such as sources and counts, by key and
        without its log.

        Empty if the training has not finished.
        """
        return {key: value for key, value in Folder(self.path).training.items() if key != "log"}

    @property
    def log(self) -> DataFrame:
        """Return a pandas frame with one row for each logged step, empty without any."""
        import pandas

        return pandas.DataFrame(Folder(self.path).training.get("log", []))

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.log.tail(3).to_html(index=False)}"


@dataclass(frozen=True)
class DryRun:
    """What a call would do with `dry_run=True`; nothing was sent or written."""

    messages: list[dict[str, Any]]
    """Messages of the first conversation's calls, in order; for `judge` those of each judge's first
    call. Empty if no model is called, as in a training."""
    calls: int
    """Model calls."""
    tokens: int
    """Largest number of tokens of prompts and replies; for a training the tokens of its rows."""
    dollars: float | None
    """Largest cost in dollars; None if a price is unknown."""
    lines: list[str] = field(default_factory=list)
    """For a training: the lines that the command prints."""

    def __repr__(self) -> str:
        usd = "price unknown" if self.dollars is None else f"at most ${self.dollars:,.2f}"
        return f"DryRun({self.calls:,} calls, at most {self.tokens:,} tokens, {usd})"


class Report:
    """A report: its tables as data frames, and the document as text."""

    def __init__(self, result: ReportResult) -> None:
        self._result = result

    @cached_property
    def tables(self) -> dict[str, DataFrame]:
        """Return the tables as pandas frames by name: `results`, `differences`, `counts`, …

        Numbers are unrounded; a mean has columns with its error, interval, n and groups beside it,
        a difference with its p. The first column is the setting.
        """
        return self._result.document.frames()

    def __getitem__(self, label: str) -> DataFrame:
        return self.tables[label]

    def markdown(self) -> str:
        """Return the report as markdown."""
        return render_text(self._result.document, "markdown")

    def latex(self) -> str:
        """Return the report as LaTeX."""
        return render_text(self._result.document, "latex")

    def html(self) -> str:
        """Return the report as the text of one HTML page."""
        return render_text(self._result.document, "html")

    def __repr__(self) -> str:
        return f"Report({', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        named = self.tables.items()
        return "".join(
            f"<p><b>{escape(label)}</b></p>{table.to_html(index=False)}" for label, table in named
        )
