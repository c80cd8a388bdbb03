"""A run of some length, through import, judge, query, export and publish."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from convbench.store import Run
from convbench.store.query import run_query
from tests.helpers import stages
from tests.helpers.logs import write_logs

COUNT = 1_600


@pytest.mark.exhaustive
def test_a_run_holds_what_was_imported(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs.jsonl", COUNT)
    rows = [json.loads(line) for line in (tmp_path / "logs.jsonl").open()]
    run = stages.import_logs(tmp_path / "logs.jsonl", tmp_path / "run")
    judged = stages.judge_result(run.path, "rules")
    assert judged.summaries[0].jobs.done == COUNT
    run = Run.open(run.path)
    assert [[turn.content for turn in talk.turns] for talk in run.conversations()] == [
        [message["content"] for message in row["messages"]] for row in rows
    ]
    right = sum(row["messages"][-1]["content"].endswith("B") for row in rows)
    counts = "count(*), count(*) FILTER (WHERE correct), count(DISTINCT group_id)"
    found = run_query(f"SELECT {counts} FROM conversations", [run])
    assert found.rows == [(COUNT, right, COUNT // 4)]
    sql = "SELECT judge, count(*), sum(reward) FROM verdicts GROUP BY 1 ORDER BY 1"
    imported, rules = run_query(sql, [run]).rows
    assert imported[:2] == ("imported", COUNT)
    assert abs(imported[2] - sum(row["reward"] for row in rows)) < 1e-6
    assert rules[:2] == ("rules", COUNT)
    again = stages.judge_result(run.path, "rules")
    assert (again.summaries[0].already_scored, again.summaries[0].jobs.done) == (COUNT, 0)
    laid = stages.publish(run, "me/set", judge="rules")
    shown = [
        one
        for path in sorted((laid.folder / "conversations").iterdir())
        for one in parquet.read_table(
            path, columns=["conversation_id", "messages", "rewards"]
        ).to_pylist()
    ]
    assert laid.rows["conversations"] == {"train": COUNT * 4 // 5, "test": COUNT // 5}
    by_name = {one["conversation_id"]: one for one in shown}
    for talk, row in zip(run.conversations(), rows, strict=True):
        one = by_name[talk.conversation_id]
        assert [message["content"] for message in one["messages"]] == [
            message["content"] for message in row["messages"]
        ]
        assert {given["judge"] for given in one["rewards"]} == {"imported", "rules"}
