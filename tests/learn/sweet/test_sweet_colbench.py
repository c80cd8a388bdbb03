"""`build colbench-backend`, `judge`, `train sweet`, `eval` on whole tasks, from one to the next.

Training is in this process: what is typed is `test_sweet_resume.py`'s, and every process of its own
loads torch anew.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from convbench.models.weights_path import check_weights
from convbench.store import Run
from convbench.store.jsonl import read_records
from tests.helpers import stages
from tests.helpers.excerpts import Source, named, sources
from tests.helpers.sandbox import HUMAN, TASKS, command, needs_wall
from tests.support.provider import Call, Provider

SETS = (
    "args.share=1", "args.candidates=2", "args.pairs=1", "args.conversations=1",
    "args.held_out=0.3", "args.critic.epochs=1", "fit.precision=fp32", "fit.epochs=1",
    "fit.accumulation=1", "fit.learning_rate=1e-4",
)  # fmt: skip
WRONG = "I WANT TO ANSWER:\ndef f(*args):\n    return 0"


class Agent:
    """Asks once, then gives the reference in every other conversation about a task, and plays the
    human too."""

    def __init__(self, tasks: Path) -> None:
        rows = duckdb.execute(
            "select problem_description, ground_truth from read_parquet(?)", [str(tasks)]
        ).fetchall()
        self.known = {" ".join(question.split()): reference for question, reference in rows}
        self.given = Counter[str]()

    def __call__(self, call: Call) -> str:
        if HUMAN in call.system:
            return "Anything sensible will do."
        said = " ".join(call.text.split())
        if "Anything sensible will do." not in said:
            return "OUTPUT:\nWhat should it do when there is nothing to work on?"
        question = max((q for q in self.known if q in said), key=len)
        self.given[question] += 1
        return WRONG if self.given[question] % 2 else f"I WANT TO ANSWER:\n{self.known[question]}"


@pytest.mark.exhaustive
@pytest.mark.timeout(290)
@needs_wall
@pytest.mark.slow
@pytest.mark.parametrize("hub_rows", sources("data/hub")[-1:], ids=named, indirect=True)
def test_from_whole_tasks_to_a_policy(tmp_path: Path, hub_rows: Source) -> None:
    tasks = hub_rows.place / TASKS
    base = tmp_path / "base"  # a model that ends its turns, with room for long requests
    shutil.copytree(check_weights("pocket"), base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16384}))
    with Provider(reply=Agent(tasks)) as provider:
        served = ("--api-base", provider.api_base, "--concurrency", "1")
        command(
            tmp_path, "build", "colbench-backend", "--set", f"task.source.file={tasks}",
            "--model", "openai/scripted", "--samples", "2", "--temperatures", "1.0",
            "--tasks", "6", "--turns", "2", "--max-tokens", "200", "--run", "run", *served,
        )  # fmt: skip
        command(tmp_path, "judge", "--run", "run")
        trained = stages.train(
            "sweet", tmp_path / "run", model=str(base), in_process=True, set=SETS
        )
        command(tmp_path, "eval", "run/checkpoints/sweet", "--concurrency", "4")
    run = Run.open(tmp_path / "run")
    rewards = Counter(v.scores["accuracy"] for v in run.verdicts())
    assert set(rewards) == {0.0, 1.0}
    folder = run.checkpoints_folder / "sweet"
    critic = json.loads((folder / "critic" / "training.json").read_text())
    assert critic["counts"]["pairs"] > 0
    assert critic["held_out"]["pairs"] > 0
    (label, right), *shown = trained.result_lines
    assert label == "critic"
    assert f"right on {critic['held_out']['accuracy']:.0%} of" in right
    turns = [line.split() for _, line in shown if line.strip()[:1] in "+-"]
    values = [v for one in critic["held_out"]["advantages"].values() for v in one]
    assert [float(value) for value, *_ in turns] == pytest.approx(values, abs=1e-3)
    assert {" ".join(words)[:7] for _, *words in turns} == {"OUTPUT:", "I WANT "}
    ranked = list(read_records(folder / "ranked.jsonl"))
    assert len({row["advantage"] for row in ranked}) > len(ranked) / 2
    references = [e.hidden["reference"] for e in run.examples.values()]
    assert not any(text in row["text"] for row in ranked for text in references)
    evaluated = Run.open(run.evals_folder / "sweet")
    assert {v.judge for v in evaluated.verdicts()} == {"unit-tests"}
    assert len(list(evaluated.conversations())) == 2 * sum(
        e.split == "test" for e in run.examples.values()
    )
