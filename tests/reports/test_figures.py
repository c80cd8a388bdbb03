"""Numbers of a report: for programs in full, and on what scale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convbench.commands.gold import GoldOptions, label_sample
from convbench.reports.document import Table
from convbench.reports.measures import ACCURACY, paired_differences
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.runs import make, questions
from tests.support.app import app


@pytest.fixture
def run(tmp_path: Path) -> Run:
    base = make(tmp_path / "run", questions(12), lambda q, k: "A" if int(q[1:]) % 3 else "B",
                overall=lambda q, k: 5 + int(q[1:]) % 4)  # fmt: skip
    make(base.evals_folder / "swift", questions(12), lambda q, k: "A" if int(q[1:]) % 7 else "B",
         overall=lambda q, k: min(10, 7 + int(q[1:]) % 4), parent=base.manifest.id)  # fmt: skip
    return base


def figures(made: dict[str, Any], label: str, method: str) -> list[dict[str, Any]]:
    """Return the figures of one line of a table."""
    (table,) = [t for part in made["parts"] for t in part["tables"] if t["label"] == label]
    (row,) = [row for row in table["rows"] if row[0]["text"] == method]
    return [cell["figure"] for cell in row]


@pytest.mark.parametrize("asked", [("--format", "json"), ("--json",)])
def test_json_has_numbers_as_they_were_computed(run: Run, asked: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["report", str(run.path), *asked])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    made = made.get("result", made)
    assert made["runs"] == [str(run.path)]
    result = stages.report(run.path)
    (section,) = result.sections
    base = next(policy for policy in section.policies if policy.is_base)
    mean = ACCURACY.mean_of(base)
    assert mean is not None
    one = figures(made, "results", "Base")[1]
    assert one["estimate"] == pytest.approx(mean.mean, abs=1e-12)
    assert one["error"] == pytest.approx(mean.error, abs=1e-12)
    assert one["interval"] == pytest.approx(mean.interval, abs=1e-12)
    assert (one["p"], one["n"]) == (None, 36)
    (less,) = paired_differences(section, ACCURACY)
    assert less.estimate is not None
    one = figures(made, "differences-to-base-paired", "SWiFt")[1]
    assert one["estimate"] == pytest.approx(less.estimate.mean, abs=1e-12)
    assert one["p"] == pytest.approx(less.adjusted, abs=1e-12)
    assert figures(made, "counts", "Base")[1]["estimate"] == 36


def test_what_is_piped_is_not_wrapped(run: Run) -> None:
    printed = CliRunner().invoke(app, ["report", str(run.path)]).stdout
    (line,) = [one for one in printed.splitlines() if one.startswith("Mean ± ")][:1]
    assert line.endswith("groups.")
    assert len(line) > 80
    (head,) = [one for one in printed.splitlines() if one.startswith("Method") and "Pedag" in one]
    assert len(head) > 80  # the whole table beside itself
    assert all(one == one.rstrip() for one in printed.splitlines())


def table(run: Run, label: str, **options: bool) -> Table:
    made = stages.report(run.path, **options).document
    return next(t for part in made.parts for t in part.tables if t.label == label)


@pytest.mark.parametrize("label", ["results", "differences-to-base-paired", "by-temperature"])
def test_every_table_says_its_scales(run: Run, label: str) -> None:
    notes = " ".join(table(run, label).notes)
    assert "Accuracy: 0 to 1" in notes
    assert "R Overall" in notes
    assert ": 0 to 10" in notes or ": 1 to 10" in notes
    assert ("standard error" in notes) == (label != "differences-to-base-paired")


def test_only_the_thinking_mode_has_a_column_of_it(run: Run, tmp_path: Path) -> None:
    assert "Thinking (%)" in [column.head for column in table(run, "results").columns]
    plain = make(tmp_path / "standard", questions(4), lambda q, k: "A", mode="standard")
    assert "Thinking (%)" not in [column.head for column in table(plain, "results").columns]


def test_an_interval_of_peoples_mean_ends_with_the_scale(tmp_path: Path) -> None:
    run = make(tmp_path / "run", questions(40), lambda q, k: "A",
               overall=lambda q, k: 10 - (int(q[1:]) % 8 == 0))  # fmt: skip
    label_sample(GoldOptions((str(run.path),), draw=8))
    file = tmp_path / "q.jsonl"
    label_sample(GoldOptions(("export", str(file)), run=run.path))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for place, row in enumerate(rows):
        row["scores"]["overall"] = 10 if place % 2 else 9
        row["rater"] = "Ann"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    label_sample(GoldOptions(("import", str(file)), run=run.path))
    found = table(run, "gold", gold=True)
    (row,) = found.rows
    assert row[3].figure is not None
    assert row[3].figure.interval is not None
    assert row[3].figure.interval[1] > 10
    assert row[4].text.endswith(", 10.00]")
    assert "Scores of overall are from 0 to 10" in " ".join(found.notes)
