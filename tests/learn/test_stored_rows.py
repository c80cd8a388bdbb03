"""Rows that the first of several processes makes, and all of them read."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convbench.errors import RunError
from convbench.learn import job as jobs
from convbench.learn import stored_rows
from convbench.learn.job import counts_of, load_rows, shared_data
from convbench.learn.rows import PairRow, PairRows, TrainingRow, TrainingRows
from convbench.learn.stored_rows import StoredData, read_data, write_data
from convbench.learn.tokens import TokenRow
from tests.helpers import tiny


@pytest.fixture(autouse=True)
def several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few rows written in several batches."""
    monkeypatch.setattr(stored_rows, "AT_ONCE", 3)


def rows() -> TrainingRows:
    """Of any length, with numbers that no shorter one stands for."""
    draw = random.Random(1)
    found = []
    for number in range(10):
        size = draw.randrange(1, 9)
        tokens = TokenRow(
            tuple(draw.randrange(200_000) for _ in range(size)),
            tuple(draw.randrange(2) for _ in range(size)),
        )
        found.append(
            TrainingRow(f"c{number}", number, 10, tokens, draw.gauss(0, 1) / 3, number == 7)
        )
    return TrainingRows(tuple(found), {"rows": 10, "tokens": 44})


def test_rows_are_read_as_they_were_made(tmp_path: Path) -> None:
    """To the last bit, in order, from behind and in part."""
    made = rows()
    write_data(tmp_path, StoredData(made, {"items": 3, "skipped": {"failed": 1}}, 1 / 3))
    found = read_data(tmp_path)
    assert (found.figures, found.flat_tasks) == ({"items": 3, "skipped": {"failed": 1}}, 1 / 3)
    assert (tuple(found.rows.rows), found.rows.counts) == (made.rows, made.counts)
    assert found.rows.rows[-1] == made.rows[-1]
    assert found.rows.rows[2:5] == made.rows[2:5]
    assert [row.trainer_fields() for row in found.rows.rows] == [
        row.trainer_fields() for row in made.rows
    ]


def test_pairs_are_read_as_they_were_made(tmp_path: Path) -> None:
    made = PairRows(
        tuple(PairRow(f"q{n}", list(range(n)), [n], [n, n + 1]) for n in range(7)), {"pairs": 7}
    )
    write_data(tmp_path, StoredData(made, {}))
    found = read_data(tmp_path)
    assert isinstance(found.rows, PairRows)
    assert (tuple(found.rows.rows), found.rows.counts) == (made.rows, made.counts)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no-folder"):
        write_data(tmp_path / "no-folder", StoredData(rows(), {}))


@pytest.mark.parametrize("recipe", ["swift", "dpo", "kto"])
def test_the_log_is_learnt_once_by_the_first_of_several_processes(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits, and has the rows, figures and share of flat tasks that one alone has."""
    model = tiny.save_model(tmp_path / "model")
    run = tiny.judged_run(tmp_path / "run", f"local:{model}")
    unit = "turn" if recipe == "kto" else "conversation"
    job, learnt = tiny.prepared(tmp_path, recipe, run, model, **{"data.unit": unit})
    asked: list[Any] = []
    module: Any = SimpleNamespace(data=lambda own: asked.append(own) or learnt)
    waits, found = threading.Event(), list[StoredData[Any]]()
    shared = tmp_path / "rows"
    shared.mkdir()

    def wait(seconds: float) -> None:
        waits.set()
        threading.Event().wait(seconds)

    monkeypatch.setattr(stored_rows.time, "sleep", wait)
    monkeypatch.setenv("LOCAL_RANK", "1")
    second = threading.Thread(target=lambda: found.append(shared_data(job, module, shared)))
    second.start()
    assert waits.wait(60)
    assert not asked, "it selects nothing"
    monkeypatch.setenv("LOCAL_RANK", "0")
    found.append(shared_data(job, module, shared))
    second.join(60)
    assert asked == [job]
    alone = load_rows(job, learnt)
    for one in found:
        assert tuple(one.rows.rows) == tuple(alone.rows)
        assert list(one.rows.counts.items()) == list(alone.counts.items())
        assert list(one.figures.items()) == list(counts_of(job, learnt).items())
        assert one.flat_tasks == getattr(learnt, "flat_tasks", 0.0)
        assert load_rows(job, one) is one.rows


def test_rows_of_another_process_give_the_same_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`training.json`, byte for byte."""
    model = tiny.save_model(tmp_path / "model")
    run = tiny.judged_run(tmp_path / "run", f"local:{model}")
    job, learnt = tiny.prepared(tmp_path, "swift", run, model)
    written = []
    stored = StoredData(load_rows(job, learnt), counts_of(job, learnt), learnt.flat_tasks)
    write_data(tmp_path, stored)
    for one in (learnt, read_data(tmp_path), replace(stored, figures={"run": "another"})):
        monkeypatch.setattr(jobs, "content_hash", lambda _: "f00d")
        jobs.write_summary(job, one, [{"loss": 0.1}], flat_tasks=one.flat_tasks)
        written.append((job.folder / "training.json").read_bytes())
    assert written[0] == written[1] != written[2]
