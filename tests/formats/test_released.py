"""Trajectories as ColBench's authors release them: imported with what is hidden, then trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import DataError, TrainError
from convbench.formats.importing import import_file
from convbench.learn.train import TrainResult
from convbench.store.query import run_query
from tests.helpers import stages
from tests.helpers.tiny import save_model
from tests.support.later import later

torch = later("torch")

PROMPT = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
    "December 2023\nToday Date: 26 Jul 2024\n\nYou help a person.<|eot_id|><|start_header_id|>user"
)
SETS = (
    "args.candidates=2", "args.held_out=0", "args.share=0.2", "fit.max_steps=2",
    "fit.learning_rate=1e-2", "fit.warmup_steps=0",
    "fit.precision=fp32", "fit.gradient_checkpointing=false", "fit.save=end", "fit.batch=2",
    "args.pairs=1",
)  # fmt: skip


def released(tasks: int = 3) -> Iterator[dict[str, Any]]:
    """Rows in the shape of the release, words of our own: three samples of each task, in blocks."""
    for sample in range(3):
        for number in range(tasks):
            yield {
                "task": {
                    "problem_description": f"I need function {number}",
                    "ground_truth": f"def f():\n    return {number}",
                    "test_cases": {"test1": "f()"},
                },
                "dialogue_history": [
                    {"role": "user", "content": f"I need function {number}"},
                    {"role": "assistant", "content": "What for?", "input": PROMPT,
                     "output": "Let me ask. OUTPUT:\nWhat for?"},
                    {"role": "user", "content": "For sums."},
                    {"role": "assistant", "content": f"I WANT TO ANSWER: {sample}",
                     "input": PROMPT, "output": f"I WANT TO ANSWER: {sample}"},
                ],
                "answer": str(sample),
                "reward": (1.0, 1.0, 0.4)[sample],
            }  # fmt: skip


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def train(run: Path, model: Path, *sets: str, dry: bool = False) -> TrainResult:
    return stages.train(
        "sweet", run, model=str(model), in_process=True, dry_run=dry, set=(*SETS, *sets)
    )


def test_from_the_release_to_a_policy(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    file = written(tmp_path / "rows.jsonl", list(released()))
    done = import_file(file, tmp_path / "run", "run-1")
    assert (done.conversations, done.rewards, done.examples) == (9, 9, 3)
    assert any("hidden fields" in note and "reference (9)" in note for note in done.notes)
    run = done.run
    example = next(iter(run.examples.values()))
    assert set(example.hidden) == {"reference", "tests"}
    talk = next(run.conversations())
    assert talk.systems == {"assistant": "You help a person."}
    assert "Let me ask. OUTPUT:" in str(talk.turns[1].content), "its thought is what it wrote"
    assert talk.metadata == {"answer": "0"}
    assert "return 0" not in str([turn.content for turn in talk.turns])
    assert run_query(
        "select count(*) from examples where hidden->>'reference' is null", [run]
    ).rows == [(0,)]

    base = save_model(tmp_path / "base")
    said = train(run.path, base, dry=True).preview
    text = "\n".join(said)
    assert "stage 1: 3 pairs of trajectories" in text, "one of two best against the lower one"
    assert "tied questions: 3 of 3 (ties: random, one of the equals is drawn)" in text
    assert "advantage: mean over each turn's tokens; reference with hidden" in text
    assert "NLL: 0 in stage 1, 0.01 in stage 2" in text
    assert "stage 1 fit: 2 pairs per step (1 x 2 x 1 process(es))" in text
    assert "falling to 10%, Adam 0.9/0.95, 4 epochs" in text
    assert "peak memory of scoring: about 0.0" in text
    assert "peak memory of stage 1: about 0.0" in text
    assert not run.checkpoints_folder.exists()
    path = train(run.path, base).path
    assert path is not None
    critic = json.loads((path / "critic" / "training.json").read_text())
    assert critic["items"] == 3
    assert len((path / "ranked.jsonl").read_text().splitlines()) == 2 * 2 * 2
    assert json.loads((path / "training.json").read_text())["log"]


def test_a_dry_run_refuses_what_training_would(tmp_path: Path) -> None:
    rows = list(released())
    for row in rows:
        del row["task"]["ground_truth"]
    run = import_file(written(tmp_path / "rows.jsonl", rows), tmp_path / "run", "run-1").run
    base = save_model(tmp_path / "base")
    with pytest.raises(TrainError, match="found no hidden field 'reference'; it has"):
        train(run.path, base, dry=True)
    with pytest.raises(TrainError, match="no hidden field 'reference'"):
        train(run.path, base, "lora.quantize=4bit", dry=True)
    with pytest.raises(TrainError, match="expected a multiple of 3"):
        train(run.path, base, "fit.batch_size=3", "fit.batch=8", dry=True)
    told = "args.hidden=[tests]"
    with pytest.raises(TrainError, match="critic takes an adapter on unquantized weights"):
        train(run.path, base, told, "lora.quantize=4bit", dry=True)
    assert "stage 2" in "\n".join(train(run.path, base, told, dry=True).preview)


def test_samples_of_a_question_hide_the_same(tmp_path: Path) -> None:
    rows = list(released(1))
    rows[2]["task"]["ground_truth"] = "another"
    with pytest.raises(DataError, match=r"rows\.jsonl:3: hidden .* but line 1 has"):
        import_file(written(tmp_path / "rows.jsonl", rows), tmp_path / "run", "run-1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": {"ground_truth": "x"}}, "problem_description: found none"),
        ({"dialogue_history": ["x"]}, r"dialogue_history\[0\]: expected an object"),
        ({"dialogue_history": []}, "found no messages"),
        ({"reward": "high"}, "reward"),
    ],
)
def test_a_bad_row_is_one_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    row = {**next(released(1)), **change}
    with pytest.raises(DataError, match=said):
        import_file(written(tmp_path / "rows.jsonl", [row]), tmp_path / "run", "run-1")
