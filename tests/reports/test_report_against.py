"""Any pair of policies, paired: `--against`, `--baseline`; and tables for programs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.reports.writers import render_text
from tests.helpers import stages
from tests.helpers.runs import make, questions


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Base right on 2 of 4 questions, echo on all, other on 3: with every sample."""
    asked = questions(4)
    base = make(tmp_path / "run", asked, lambda q, k: "A" if int(q[1:]) < 2 else "B")
    for name, right in (("echo", 4), ("other", 3)):
        make(
            base.evals_folder / name,
            asked,
            lambda q, k, right=right: "A" if int(q[1:]) < right else "B",
            parent=base.manifest.id,
            split="test",
        )
    return base.path


def differences(run: Path, **options: object) -> dict[str, dict[str, str]]:
    """Return, by caption, each method's difference in accuracy."""
    made = stages.report(run, **options).document  # type: ignore[arg-type]
    return {
        table.caption: {row[0].text: row[1].text for row in table.rows}
        for part in made.parts
        for table in part.tables
        if table.caption.startswith("Differences")
    }


def test_every_pair_can_be_asked_for(run: Path) -> None:
    found = differences(run, against=("echo",))
    base, echo = found.values()
    assert list(found) == [
        "Differences to Base, paired", "Differences to echo, paired",
    ]  # fmt: skip
    assert base == {"echo": "+0.5000", "other": "+0.2500"}
    assert echo == {"other": "-0.2500", "Base": "-0.5000"}


def test_another_baseline_takes_bases_place(run: Path) -> None:
    (found,) = differences(run, baseline="other").values()
    assert found == {"echo": "+0.2500", "Base": "-0.2500"}
    made = stages.report(run, baseline="other").document
    (table,) = [t for part in made.parts for t in part.tables if t.label == "by-temperature"]
    assert "losses to other" in [column.head for column in table.columns]


@pytest.mark.parametrize("option", ["baseline", "against"])
def test_an_unknown_policy_is_one_line(run: Path, option: str) -> None:
    value = "nope" if option == "baseline" else ("nope",)
    with pytest.raises(RunError, match=f"--{option} nope: found no such policy; expected one of"):
        differences(run, **{option: value})


def test_programs_read_every_cell(run: Path) -> None:
    made = stages.report(run).document
    found = json.loads(render_text(made, "json"))
    rows = list(csv.DictReader(io.StringIO(render_text(made, "csv"))))
    cells = {
        (part["title"], table["label"], row[0]["text"], head): cell
        for part in found["parts"]
        for table in part["tables"]
        for row in table["rows"]
        for head, cell in zip(table["columns"][1:], row[1:], strict=True)
    }
    assert {(r["part"], r["table"], r["row"], r["column"]) for r in rows} == set(cells)
    (accuracy,) = [r for r in rows if (r["row"], r["column"], r["table"]) == (
        "echo", "Accuracy", "results",
    )]  # fmt: skip
    assert accuracy["value"] == "1.0000"
