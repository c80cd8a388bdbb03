"""What the verbs return: runs, checkpoints and reports, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convbench import store
from convbench.api.frames import Frame, frame, tables
from convbench.report.files import text
from convbench.report.report import ReportResult
from convbench.schema import RunManifest
from convbench.store.checkpoint import Checkpoint as Folder
from convbench.store.query import query

if TYPE_CHECKING:
    from pandas import DataFrame


class Run:
    """A run: its conversations and all that came of them."""

    def __init__(self, opened: store.Run) -> None:
        self._run = opened

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._run.path

    @property
    def manifest(self) -> RunManifest:
        """What was asked for: task, protocol, cast, numbers."""
        return self._run.manifest

    @property
    def conversations(self) -> DataFrame:
        """One row a conversation, as `query` has them."""
        return self.table("conversations")

    @property
    def turns(self) -> DataFrame:
        """One row a turn."""
        return self.table("turns")

    @property
    def verdicts(self) -> DataFrame:
        """One row for each conversation and judge: the newest."""
        return self.table("verdicts")

    @property
    def examples(self) -> DataFrame:
        """One row a question."""
        return self.table("examples")

    def table(self, name: str, frame: Frame = "pandas") -> Any:
        """Return one of the tables (examples, conversations, turns, verdicts, runs)."""
        return self.query(f"from {name}", frame)

    def query(self, sql: str, frame: Frame = "pandas") -> Any:
        """Return what one SELECT finds in this run. Raises QueryError."""
        return queried(sql, [self], frame)

    @property
    def evaluations(self) -> list[Run]:
        """The child runs: other policies on the same questions."""
        return [Run(child) for child in self._run.children()]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """What was trained on it and came to its end."""
        there = sorted(self._run.checkpoints.glob("*"))
        return [Checkpoint(folder) for folder in there if Folder(folder).finished]

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


def queried(sql: str, runs: list[Run], kind: Frame = "pandas") -> Any:
    """Return what one SELECT finds in these runs."""
    return frame(query(sql, [run._run for run in runs]).arrow, kind)


@dataclass(frozen=True)
class Checkpoint:
    """What a training left."""

    path: Path

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The resolved recipe."""
        return Folder(self.path).recipe

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the training wrote: where it comes from, counts."""
        return {key: value for key, value in Folder(self.path).training.items() if key != "log"}

    @property
    def log(self) -> DataFrame:
        """One row a logged step."""
        import pandas

        return pandas.DataFrame(Folder(self.path).training.get("log", []))

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.log.tail(3).to_html(index=False)}"


@dataclass(frozen=True)
class DryRun:
    """What a call would do with `dry_run=True`; nothing was sent or written."""

    messages: list[dict[str, Any]]
    """What the calls of the first conversation are sent, in order; of `judge` the first call of
    each judge. Empty where no model is asked, as in a training."""
    calls: int
    """Calls of models."""
    tokens: int
    """Tokens of prompts and replies, at most; of a training those of its rows."""
    dollars: float | None
    """What they cost, at most; None where a price is unknown."""
    lines: list[str] = field(default_factory=list)
    """Of a training: what the command prints."""

    def __repr__(self) -> str:
        usd = "price unknown" if self.dollars is None else f"at most ${self.dollars:,.2f}"
        return f"DryRun({self.calls:,} calls, at most {self.tokens:,} tokens, {usd})"


class Report:
    """A report: its tables as data frames, and whole."""

    def __init__(self, result: ReportResult) -> None:
        self._result = result

    @cached_property
    def tables(self) -> dict[str, DataFrame]:
        """The tables by label: results, differences-to-base-paired, …"""
        return tables(self._result.document)

    def __getitem__(self, label: str) -> DataFrame:
        return self.tables[label]

    def markdown(self) -> str:
        """The whole report as markdown."""
        return text(self._result.document, "markdown")

    def latex(self) -> str:
        """The whole report as LaTeX."""
        return text(self._result.document, "latex")

    def html(self) -> str:
        """The whole report as one HTML page."""
        return text(self._result.document, "html")

    def __repr__(self) -> str:
        return f"Report({', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        named = self.tables.items()
        return "".join(
            f"<p><b>{escape(label)}</b></p>{found.to_html(index=False)}" for label, found in named
        )
