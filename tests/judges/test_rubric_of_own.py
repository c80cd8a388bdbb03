"""A rubric of its own kind through every room: asked, queried, reported, scored by people, sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from convbench.hub.tables import open_portions, write_tables
from convbench.judges.scoring_form import form_rubric
from convbench.store.query import run_query
from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.helpers.viewing import viewing
from tests.support.provider import Plan, Provider

HAGGLE = Path(__file__).parent / "haggle.yaml"
WORDS = "It is what was said."


def reply(call: Any) -> str:
    """Profit 20, 40 and 60 of the three conversations, fairness 3, firmness 1."""
    number = int(re.findall(r"SAID(\d)", call.messages[1][1])[0])
    scores = {"profit": 20 * (number + 1), "fairness": 3, "confidence": 1}
    return json.dumps({k: {"score": s, "justification": WORDS} for k, s in scores.items()})


def haggled(folder: Path) -> Run:
    """A run of two questions, three conversations each, judged by the haggling rubric."""
    names = ("q0", "q1")
    talks = [tiny.conversation(name, i, [f"SAID{i}"]) for name in names for i in range(3)]
    run = tiny.make_run(folder, [(one, []) for one in talks], [tiny.example(n) for n in names])
    with Provider(Plan(), reply=reply) as provider:
        result = stages.judge_result(run.path, f"{HAGGLE}@openai/judge", api_base=provider.api_base)
    assert result.summaries[0].jobs.done == 6
    return run


def test_a_haggling_judge_is_first_class_in_every_room(tmp_path: Path) -> None:
    run = haggled(tmp_path / "run")
    means = ("profit", "fairness", "overall", "reward", "accuracy")
    sql = f"select {', '.join(f'avg({name})' for name in means)} from verdicts"
    # overall = 3/4 of profit / 100 and 1/4 of (3 - 1) / 4
    assert run_query(sql, [run]).rows == [(40.0, 3.0, 0.425, 0.425, None)]

    table = stages.report(run.path, split="all").document.parts[0].tables[0]
    assert [column.head for column in table.columns[-5:-1]] == [
        "R Overall", "R Profit kept", "R Fairness", "R Firmness",
    ]  # fmt: skip

    with open_portions(run, tmp_path) as parts:
        write_tables(parts, tmp_path / "set", None)
    import pyarrow.parquet

    sent = pyarrow.parquet.read_table(tmp_path / "set" / "verdicts")
    assert {"profit", "fairness", "overall", "pedagogical"} <= set(sent.column_names)


def test_people_score_by_the_judges_rubric_and_agree_with_it(tmp_path: Path) -> None:
    run = haggled(tmp_path / "run")
    old = {"conversation_id": "run-q1-2", "rater": "ada", "pedagogical": 3, "overall": 3}
    (run.path / "labels.jsonl").write_text(json.dumps(old) + "\n")  # before runs had own rubrics
    with viewing(run.path) as viewer:
        form = viewer.json("/api/overview")["rubrics"][0]
        assert [metric["label"] for metric in form["metrics"]] == [
            "Profit kept", "Fairness", "Firmness",
        ]  # fmt: skip
        label = {"conversation_id": "run-q0-0", "rater": "bob", "note": "",
                 "scores": {"profit": 20, "fairness": 5}}  # fmt: skip
        assert "note" in viewer.json("/api/score", "POST", label)["error"]
        given = viewer.json("/api/score", "POST", {**label, "note": "A fair price."})
        assert given["profit"] == 20
        agreed = viewer.json("/api/agreement/0")
        # people 0.75 * 0.2 + 0.25 * 1, the judge 0.125 less
        assert agreed["judges"][0]["difference"] == -0.125
        assert agreed["metric"] == "Overall"
        assert viewer.json("/api/talk/run-q1-2")["labels"][0]["pedagogical"] == 3
    command = agreed["command"].split()
    assert command[3] == f"haggle@human:{run.path}/labels-haggle.jsonl"
    stages.judge(run.path, command[3])
    sql = "select profit, reward from verdicts where judge = 'human:labels-haggle'"
    assert run_query(sql, [run]).rows == [(20.0, 0.4)]
    assert form_rubric(run).name == "haggle"
