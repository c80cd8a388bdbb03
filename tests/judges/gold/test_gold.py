"""From a draw to a report: real runs, labels that come back by file, what is said of the judge."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convbench.commands.gold import GoldOptions, label_sample
from convbench.errors import DataError, RunError, UsageError
from convbench.judges.gold.labels import gold_of, newest_labels, read_draws
from convbench.reports.document import Table, mean_of
from convbench.store import Run
from convbench.store.query import run_query
from tests.helpers import stages
from tests.helpers.runs import make, questions
from tests.support.app import app

PEOPLE = {f"q{i}": 3 + 4 * random.Random(i).random() for i in range(200)}
"""What people think of any answer to a question."""


def judged(bias: float, seed: int) -> Any:
    """The judge: people, half a point of noise, and a bias."""
    noise = random.Random(seed)
    said = {(f"q{i}", k): noise.gauss(0, 0.5) for i in range(201) for k in range(3)}
    return lambda q, k: min(10, max(0, PEOPLE.get(q, 5) + bias + said[q, k]))


def runs(folder: Path, more: float = 2.0) -> Run:
    """Base and a trained policy of which people think the same; the judge pays it `more`."""
    examples = questions(80)
    run = make(folder / "run", examples, lambda q, k: "A", overall=judged(0.5, 1))
    make(
        folder / "run" / "evals" / "swift", examples, lambda q, k: "A",
        overall=judged(0.5 + more, 2), parent=run.manifest.id,
    )  # fmt: skip
    return run


def said(run: Run, file: Path, *, most: int | None = None, policy: str | None = None) -> int:
    """Export the queue, fill it in as people would, and import it."""
    label_sample(GoldOptions(("export", str(file)), run=run.path))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    kept = []
    for row in rows[:most]:
        number = row["question"].split()[-1].removesuffix("?")
        row["scores"]["overall"] = round(PEOPLE[f"q{number}"], 2)
        kept.append({**row, "rater": "Ann"})
    file.write_text("".join(json.dumps(row) + "\n" for row in kept))
    return label_sample(GoldOptions(("import", str(file)), run=run.path)).imported or 0


def table_of(run: Run, name: str) -> Table | None:
    """A table of the report."""
    (part,) = stages.report(run.path).document.parts
    return next((table for table in part.tables if table.name == name), None)


def test_a_draw_records_its_probabilities_and_goes_across_policies(tmp_path: Path) -> None:
    run = runs(tmp_path)
    drawn = label_sample(GoldOptions((str(run.path),), draw=100)).drawn
    assert drawn is not None
    assert drawn.policies == {"base": 50, "swift": 50}
    (draw,) = read_draws(run)
    assert len(draw.drawn) == 100
    assert draw.pool == 240
    chances = {one.conversation_id: one.chance for one in draw.drawn}
    # Both policies at the same place, with the same probability.
    own = {c.conversation_id: (c.example_id, c.sample) for c in run.conversations()}
    child = {
        c.conversation_id: (c.example_id, c.sample) for c in run.child_runs()[0].conversations()
    }
    places = {own[name]: chance for name, chance in chances.items() if name in own}
    assert places == {child[name]: chance for name, chance in chances.items() if name in child}
    assert set(chances.values()) == {50 / 240}
    again = label_sample(GoldOptions((str(run.path),), draw=40)).drawn
    assert again is not None
    assert {one.chance for one in again.draw.drawn} == {20 / 240}
    weights = gold_of(run, draw.fingerprint).weights
    total = sum(weight for name, weight in weights.items() if name in own)
    assert total == pytest.approx(240, rel=0.25)


def test_the_report_takes_off_what_the_judge_overpays(tmp_path: Path) -> None:
    run = runs(tmp_path)
    label_sample(GoldOptions((str(run.path),), draw=120))
    assert table_of(run, "people") is None
    assert said(run, tmp_path / "q.jsonl", most=40) == 40
    assert said(run, tmp_path / "q.jsonl") == 80
    table = table_of(run, "people")
    assert table is not None
    cells = {str(row.cells[0]).lower(): row.cells[1:] for row in table.rows}
    judge, judged, people, corrected, groups = cells["swift − base"]
    assert (judge, groups > 40) == ("rules", True)
    assert judged == pytest.approx(2, abs=0.15)
    assert people == pytest.approx(0, abs=0.15)
    low, high = corrected.estimate.interval
    assert low <= 0 <= high
    assert mean_of(cells["swift"][3]) == pytest.approx(mean_of(cells["base"][3]), abs=0.5)


def test_labels_of_one_policy_alone_correct_no_difference(tmp_path: Path) -> None:
    run = runs(tmp_path, more=-2)
    label_sample(GoldOptions((str(run.path),), draw=60, policy=("base",)))
    said(run, tmp_path / "q.jsonl")
    table = table_of(run, "people")
    assert table is not None
    assert [str(row.cells[0]).lower() for row in table.rows] == ["base"]


def test_two_people_agree_and_skips_are_told(tmp_path: Path) -> None:
    run = runs(tmp_path)
    label_sample(GoldOptions((str(run.path),), draw=40, raters=2))
    file = tmp_path / "q.csv"
    names = [one.conversation_id for one in read_draws(run)[0].drawn]
    lines = [f"{names[0]},Ann,,not English", f"{names[0]},Bo,,not English"]
    lines += [f"{name},{who},{5 + k % 3 + (who == 'Bo')},"
              for k, name in enumerate(names[1:30]) for who in ("Ann", "Bo")]  # fmt: skip
    file.write_text("conversation_id,rater,overall,skipped\n" + "\n".join(lines) + "\n")
    assert label_sample(GoldOptions(("import", str(file)), run=run.path)).imported == 60
    sql = (
        "select rater, count(*), count(overall), max(skipped) from gold_labels group by 1 "
        "order by 1"
    )
    assert run_query(sql, [run]).rows == [
        ("Ann", 30, 29, "not English"),
        ("Bo", 30, 29, "not English"),
    ]
    table = table_of(run, "agreement")
    assert table is not None
    assert [(row.cells[0], row.cells[1]) for row in table.rows] == [("rules / people", 29)]


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("a.jsonl", "[1]\n", "expected an object"),
        ("a.jsonl", "{\n", "not valid JSON"),
        ("a.jsonl", '{"key": "no", "rater": "A", "scores": {"overall": 3}}\n', "no such"),
        ("a.jsonl", '{"conversation_id": "no", "scores": {"overall": 3}}\n', "was not drawn"),
        ("a.jsonl", '{"conversation_id": "ID", "rater": "A", "scores": {"overall": 11}}\n', "10"),
        ("a.jsonl", '{"conversation_id": "ID", "rater": "A", "scores": {"fame": 1}}\n', "'fame'"),
        ("a.jsonl", '{"conversation_id": "ID", "scores": {"overall": 1}}\n', "rater"),
        ("a.jsonl", '{"conversation_id": "ID", "rater": "A", "scores": {}}\n', "no label"),
        ("a.csv", "conversation_id,rater,overall\nID,A,3\nID,A,4\n", "twice"),
        ("a.csv", "conversation_id,rater,overall\nID,A,x\n", "expected a number"),
        ("a.csv", "conversation_id,rater,overall\nID,A,nan\n", "0 to 10"),
        ("a.csv", "conversation_id,rater,overall\nID,A,3,4\n", "more cells"),
        ("a.csv", "\xff", "UTF-8"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_labels_is_one_line_and_keeps_nothing(
    tmp_path: Path, small: Run, name: str, body: str, expected: str
) -> None:
    file = tmp_path / name
    one = read_draws(small)[0].drawn[0].conversation_id
    file.write_bytes(body.replace("ID", one).encode("latin-1"))
    with pytest.raises(DataError, match=expected) as caught:
        label_sample(GoldOptions(("import", str(file)), run=small.path))
    assert str(file) in str(caught.value)
    assert newest_labels(small) == {}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a few questions with a draw."""
    folder = tmp_path_factory.mktemp("gold")
    run = make(folder / "run", questions(4), lambda q, k: "A", overall=judged(0.5, 1))
    label_sample(GoldOptions((str(run.path),), draw=4))
    return run


def test_the_command_says_what_to_do_next(small: Run) -> None:
    shown = CliRunner().invoke(app, ["gold", str(small.path)])
    assert shown.exit_code == 0
    assert "0 of 4 labelled" in shown.output
    assert "then Label" in shown.output
    assert shown.output.rstrip().endswith(f"next: convbench report {small.path}")
    shown = CliRunner().invoke(app, ["gold", str(small.path), "--split", "all"])
    assert shown.output.rstrip().endswith(f"next: convbench report {small.path} --split all")
    with pytest.raises(UsageError, match="found 0 files"):
        label_sample(GoldOptions(("import",), run=small.path))
    with pytest.raises(RunError, match="expected one of these"):
        label_sample(GoldOptions((str(small.path),), draw=4, policy=("dpo",)))
    with pytest.raises(RunError, match="--judge nobody"):
        label_sample(GoldOptions((str(small.path),), draw=4, judge="nobody"))
