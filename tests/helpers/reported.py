"""Reports of runs by hand: who was right on which question, and what a table says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from convbench.options.report import ReportOptions
from convbench.reports.document import Cell, Table
from convbench.reports.report import ReportResult, make_report
from convbench.store import Run
from tests.helpers.runs import make


def right_on(*numbers: int) -> Callable[[str, int], str]:
    """Right on these questions at every temperature, wrong on all others."""
    return lambda question, sample: "A" if int(question[1:]) in numbers else "B"


def beside(run: Run, name: str, answer: Callable[[str, int], Any], **more: Any) -> Run:
    """Another policy on the test questions of a run: its evaluation NAME."""
    asked = [example for example in run.examples.values() if example.split == "test"]
    values = {"parent": run.manifest.id, "split": "test", "task": run.manifest.task.name, **more}
    return make(run.evals_folder / name, asked, answer, **values)


def learner(
    run: Run,
    name: str,
    answer: Callable[[str, int], Any],
    label: str = "",
    *,
    recipe: dict[str, Any] | None = None,
    log: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """The evaluation of a checkpoint beside a run, by a recipe of this name up to a dash."""
    folder = run.checkpoints_folder / name
    folder.mkdir(parents=True)
    made = {"name": name.partition("-")[0], **({"label": label} if label else {}), **(recipe or {})}
    (folder / "recipe.yaml").write_text(json.dumps(made))
    (folder / "training.json").write_text(json.dumps({"unit": "conversation", **(log or {})}))
    return beside(run, name, answer, checkpoint=f"checkpoints/{name}", **more)


def tables_of(*runs: Run, part: int = 0, **options: Any) -> dict[str, Table]:
    """The tables of one part of a report, by name."""
    return by_name(make_report(runs, ReportOptions(**options)), part)


def by_name(result: ReportResult, part: int = 0) -> dict[str, Table]:
    """The tables of one part of a report, by name."""
    return {table.name: table for table in result.document.parts[part].tables}


def column(table: Table, key: str) -> dict[Any, Any]:
    """The cells of a column by those of the first."""
    place = [each.key for each in table.columns].index(key)
    return {row.cells[0]: row.cells[place] for row in table.rows}


def names(table: Table) -> list[Cell]:
    """The cells of the first column."""
    return [row.cells[0] for row in table.rows]
