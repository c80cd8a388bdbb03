"""Exported files as other trainers read them: which rows are learnt, and in which direction."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.export import export_run
from convbench.learn.select import select
from convbench.learn.sweet import candidate_key
from convbench.learn.train import load_recipe
from convbench.learn.weights import weigh
from convbench.options.shared import SpecOptions
from convbench.store.run import Run
from tests.helpers import tiny

pytestmark = pytest.mark.filterwarnings("ignore")
GOOD = {"q0": [2], "q1": [0, 1]}
"""Samples of REWARDS above their question's mean: what SWiFt rewards."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three questions of three conversations, rewards as in tiny.REWARDS."""
    return tiny.judged_run(tmp_path / "run")


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def ends(path: Path) -> list[str]:
    """The last reply of every row, which names question and sample."""
    return sorted(row["messages"][-1]["content"] for row in rows(path))


GOOD_ENDS = sorted(f"end {name} {sample}" for name, kept in GOOD.items() for sample in kept)


@pytest.mark.parametrize("to", ["trl", "ms-swift"])
def test_no_row_of_negative_weight_is_written_and_the_count_is_said(to: str, run: Run) -> None:
    done = export_run(run, to, recipe="swift")
    assert ends(done.files["train"]) == GOOD_ENDS
    assert (done.rows["train"], done.left_out) == (3, {"negative": 3, "unweighted": 3})
    assert any(
        "3 of 9 conversations have a weight below 0 and were left out" in n for n in done.notes
    )


def weighted_trainer() -> Any:
    """The trainer of the page on import and export."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "import-export.md"
    code = page.read_text().partition("```python\n")[2].partition("\nrows = ")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    return names["WeightedSFT"]


def learnt(
    folder: Path, data: list[dict[str, Any]], *, weighted: bool = False
) -> tuple[list[float], Any]:
    """Let the real SFTTrainer take one step on rows; return log pi after less before of each."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    model = AutoModelForCausalLM.from_pretrained(tiny.save_model(folder / "model"))
    config = SFTConfig(
        str(folder / "out"), max_steps=1, learning_rate=0.05, optim="sgd", use_cpu=True, seed=0,
        per_device_train_batch_size=len(data), lr_scheduler_type="constant", report_to="none",
        save_strategy="no", bf16=False, gradient_checkpointing=False, max_grad_norm=0.0,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = (weighted_trainer() if weighted else SFTTrainer)(
        model, config, train_dataset=Dataset.from_list(data), processing_class=tiny.tokenizer()
    )

    def log_pi() -> list[float]:
        found = []
        for row in trainer.train_dataset:
            ids = torch.tensor([row["input_ids"]])
            with torch.no_grad():
                found.append(-model(input_ids=ids, labels=ids).loss.item())
        return found

    before = log_pi()
    trainer.train()
    return [new - old for old, new in zip(before, log_pi(), strict=True)], trainer


def test_trl_learns_each_exported_row_and_reads_no_weight(run: Run, tmp_path: Path) -> None:
    """SFTTrainer imitates every row, one of negative weight too: why none may stand in the file."""
    from datasets import load_dataset

    done = export_run(run, "trl", recipe="swift")
    file = str(done.files["train"])
    data = load_dataset("json", data_files=file, split="train", cache_dir=str(tmp_path / "c"))
    weights = sorted(row["weight"] for row in data)
    assert weights == pytest.approx(weights_by_hand())
    gains, trainer = learnt(tmp_path / "a", list(data))
    assert len(gains) == 3
    assert min(gains) > 0, "every row that is there is imitated"
    assert "weight" not in next(iter(trainer.get_train_dataloader()))
    against = [{**row, "weight": -1.0} for row in data]
    assert learnt(tmp_path / "b", against)[0] == pytest.approx(gains), "a sign is not read"
    assert any("does not read `weight`" in note for note in done.notes)
    ours, trainer = learnt(tmp_path / "d", list(data), weighted=True)
    batch = next(iter(trainer.get_train_dataloader()))
    assert sorted(batch["weight"].tolist()) == pytest.approx(weights)
    assert ours != pytest.approx(gains), "the same rows, each by its weight"
    assert any("assistant_only_loss" in note for note in done.notes)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, 0.0, 2.0), (1.0, -1.5, 0.25)])
def test_a_trl_trainer_with_weights_has_the_gradient_by_hand(
    tmp_path: Path, weights: tuple[float, ...]
) -> None:
    """(1/N) sum w_i -log pi over the learnt tokens, N those of weight 0 too; with all weights 1
    SFTTrainer's own. Two batches accumulate to one step, whose rows differ in length."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    place = tiny.save_model(tmp_path / "model")
    ids = [[5, 6, 7, 8], [9, 10, 11, 12, 13, 14], [6, 9, 12]]
    labels = [[-100, -100, 7, 8], [-100, 10, 11, 12, 13, 14], [-100, -100, 12]]
    data = Dataset.from_dict({"input_ids": ids, "labels": labels, "weight": list(weights)})
    config = SFTConfig(
        str(tmp_path / "out"), max_steps=1, learning_rate=1.0, optim="sgd", use_cpu=True, seed=0,
        per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to="none", bf16=False,
        lr_scheduler_type="constant", save_strategy="no", gradient_checkpointing=False,
        max_grad_norm=0.0, disable_tqdm=True,
    )  # fmt: skip

    def moved(kind: Any) -> list[Any]:
        """By how much one step moves each parameter: minus its gradient."""
        model = AutoModelForCausalLM.from_pretrained(place)
        before = [p.detach().clone() for p in model.parameters()]
        kind(model, config, train_dataset=data, processing_class=tiny.tokenizer()).train()
        return [old - new.detach() for old, new in zip(before, model.parameters(), strict=True)]

    model = AutoModelForCausalLM.from_pretrained(place)
    loss = 0.0
    for row, wanted, weight in zip(ids, labels, weights, strict=True):
        scores = model(input_ids=torch.tensor([row])).logits[0].log_softmax(-1)
        for at, token in enumerate(wanted[1:]):
            loss = loss - weight * scores[at, token] * (token != -100) / 8
    loss.backward()
    found = moved(weighted_trainer())
    for one, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-3, atol=1e-5)
    if set(weights) == {1.0}:
        for one, other in zip(found, moved(SFTTrainer), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def weights_by_hand() -> list[float]:
    """(r - mean) / std, ddof 1, of the rewards above their question's mean."""
    from statistics import mean, stdev

    found = []
    for rewards in tiny.REWARDS[:2]:
        found += [(r - mean(rewards)) / stdev(rewards) for r in rewards if r > mean(rewards)]
    return sorted(found)


@pytest.mark.parametrize("recipe", ["dpo", "step-dpo"])
def test_trl_prefers_what_the_recipe_chose(recipe: str, run: Run, tmp_path: Path) -> None:
    """The real DPOTrainer reads the pairs; a step widens the margin of each."""
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    done = export_run(run, "trl", recipe=recipe)
    assert done.files["train"].parent.name == recipe
    data = load_dataset(
        "json", data_files=str(done.files["train"]), split="train", cache_dir=str(tmp_path / "c")
    )
    best = {"end q0 2", "end q1 1", "reply the cat the cat"}
    assert {row["chosen"][0]["content"] for row in data} <= best
    model = AutoModelForCausalLM.from_pretrained(tiny.save_model(tmp_path / "model"))
    config = DPOConfig(
        str(tmp_path / "out"), max_steps=2, learning_rate=0.05, optim="sgd", use_cpu=True,
        per_device_train_batch_size=len(data), lr_scheduler_type="constant", report_to="none",
        save_strategy="no", bf16=False, gradient_checkpointing=False, logging_steps=1,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = DPOTrainer(model, args=config, train_dataset=data, processing_class=tiny.tokenizer())
    trainer.train()
    margins = [e["rewards/margins"] for e in trainer.state.log_history if "rewards/margins" in e]
    assert margins[0] == pytest.approx(0, abs=1e-6)
    assert margins[1] > 0
    assert torch.isfinite(torch.tensor(margins)).all()


def test_pairs_as_openai_and_ms_swift_take_them(run: Run) -> None:
    (one, two) = rows(export_run(run, "openai", recipe="dpo").files["train"])
    assert [m["role"] for m in one["input"]["messages"]][-1] == "user"
    assert [r["preferred_output"] for r in (one, two)] == [
        [{"role": "assistant", "content": f"end {name}"}] for name in ("q0 2", "q1 1")
    ]
    assert one["non_preferred_output"] == [{"role": "assistant", "content": "end q0 0"}]
    (swift, _) = rows(export_run(run, "ms-swift", recipe="dpo").files["train"])
    assert swift["messages"] == [*one["input"]["messages"], *one["preferred_output"]]
    assert swift["rejected_response"] == "end q0 0"


WEIGHTED = ["refit", "swift", "star-gate", "rft", "seal"]


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_those_that_train_learns_with(name: str, run: Run) -> None:
    """Whatever weighs: what training says, to the last digit."""
    recipe = load_recipe(name, SpecOptions(), {})
    found = weigh(select([run], recipe.data), recipe.weighting, recipe.fit.seed).of_conversations()
    written = rows(export_run(run, "trl", recipe=name).files["train"])
    assert sorted(row["weight"] for row in written) == sorted(w for _, w in found if w > 0)


OWN = """\
extends: swift
title: mine
weighting: {center: false, clip: 3.5}
data: {metric: overall, least: {"*": {overall: 3}}}
"""


def test_a_recipe_of_one_s_own_is_read_to_its_settings(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    found = {
        row["messages"][-1]["content"]: row["weight"]
        for row in rows(export_run(run, "trl", recipe=str(file)).files["train"])
    }
    # Of overall 0 0 10, 6 9 1 and 3 3 3 those of at least 3; one of q0 is too few.
    assert found == {"end q1 0": pytest.approx(6 / 4.5**0.5), "end q1 1": 3.5}


def test_settings_can_be_set_as_train_has_them(run: Run) -> None:
    sets = SpecOptions(sets=("weighting.threshold=0.6",))
    done = export_run(run, "trl", recipe="star-gate", specs=sets)
    assert ends(done.files["train"]) == ["end q0 2", "end q1 1"]


def test_seal_s_filter_holds(run: Run) -> None:
    """Best of k by its own settings; with `improves` the score that it needs is missing here."""
    done = export_run(run, "trl", recipe="seal")
    *first, tied = ends(done.files["train"])
    assert first == ["end q0 2", "end q1 1"]
    assert tied in {"end q2 0", "end q2 1", "end q2 2"}
    assert "tied questions: 1 of 3 (ties: random)" in done.notes
    improves = SpecOptions(sets=("filter=improves",))
    with pytest.raises(TrainError, match="no score 'net'"):
        export_run(run, "trl", recipe="seal", specs=improves)


def test_each_recipe_and_judge_has_a_place_of_its_own(run: Run) -> None:
    places = [
        export_run(run, "trl").files["train"],
        export_run(run, "trl", recipe="swift").files["train"],
        export_run(run, "trl", recipe="refit").files["train"],
        export_run(run, "trl", recipe="refit", judge="j").files["train"],
    ]
    folder = run.path / "export" / "trl"
    assert [path.relative_to(folder).as_posix() for path in places] == [
        "train.jsonl", "swift/train.jsonl", "refit/train.jsonl", "refit-j/train.jsonl",
    ]  # fmt: skip
    assert all(path.is_file() for path in places)


READER = Path(__file__).with_name("ms_swift_reads.py")
PYTHON = os.environ.get("CONVBENCH_MS_SWIFT_PYTHON")


@pytest.mark.skipif(not PYTHON, reason="CONVBENCH_MS_SWIFT_PYTHON names no interpreter with it")
def test_ms_swift_learns_as_the_note_says(run: Run, tmp_path: Path) -> None:
    """Its own template: weights with the flag, ones without it, and no loss below 0."""
    done = export_run(run, "ms-swift", recipe="swift")
    assert any("--is_binary_loss_scale false" in note for note in done.notes)
    file, folder = done.files["train"], tiny.save_model(tmp_path / "model")
    against = tmp_path / "against.jsonl"
    text = file.read_text()
    against.write_text(text.replace('"loss_scale":', '"loss_scale":-'))

    def read(path: Path, flag: str) -> list[dict[str, Any]]:
        words = [str(PYTHON), str(READER), str(path), str(folder), flag]
        found = subprocess.run(words, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        answer: list[dict[str, Any]] = json.loads(found.stdout.splitlines()[-1])
        return answer

    weights = [row["messages"][-1]["loss_scale"] for row in rows(file)]
    flagged = read(file, "false")
    # The end of turn, which is the next prompt's in this template, always counts 1.
    assert [row["scales"] for row in flagged] == [
        pytest.approx(sorted([w, 1.0]), rel=1e-9) for w in weights
    ]
    assert all(len(row["learnt"]) == 2 for row in flagged)
    assert sorted(row["learnt"][1] for row in flagged) == [f"{e}<|eot_id|>" for e in GOOD_ENDS]
    assert [row["scales"] for row in read(file, "unset")] == [[1.0]] * 3
    # Of a row of negative weight it would learn to end the turn, and nothing else.
    assert [row["learnt"] for row in read(against, "false")] == [["<|eot_id|>"]] * 3


def test_sweet_s_ranked_candidates_go_out_once_they_are_there(run: Run) -> None:
    """What `train sweet` left in the run."""
    folder = run.checkpoints_folder / "sweet"
    (folder / "rank").mkdir(parents=True)
    sampled = [
        {"conversation_id": "run-q0-2", "turn": 1, "candidate": number, "text": text, "cut": False}
        for number, text in enumerate(("good", "bad"))
    ]
    scores = [
        {"key": candidate_key(row), "advantages": [value]}
        for row, value in zip(sampled, (1.0, -1.0), strict=True)
    ]
    for name, found in (("candidates.jsonl", sampled), ("rank/scores.jsonl", scores)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in found))
    small = SpecOptions(sets=("args.candidates=2", "args.pairs=1"))
    (pair,) = rows(export_run(run, "trl", recipe="sweet", specs=small).files["train"])
    assert [pair[key][0]["content"] for key in ("chosen", "rejected")] == ["good", "bad"]
    assert pair["prompt"][-1] == {"role": "user", "content": "q0 ask 0"}
