"""Every learner from a judged run to a checkpoint that any loader takes, on a tiny model."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.errors import SpecError, TrainError
from convbench.learn import launch
from convbench.learn.job import Job
from convbench.learn.rows import training_rows
from convbench.learn.steps import StepCount
from convbench.learn.train import TrainResult
from convbench.schema.recipe import Distil
from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.support.later import later

fitting = later("convbench.learn.fitting")
distil = later("convbench.learn.distil")

torch = later("torch")
transformers = later("transformers")
weighted_sft = later("convbench.learn.weighted_sft")

QUICK = (
    "fit.max_steps=3", "fit.gradient_checkpointing=false", "fit.batch_size=4",
    "fit.accumulation=1", "fit.learning_rate=0.01", "fit.save=end", "fit.log_every=1",
    "data.unit=conversation",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A judged run of a tiny model of its own."""
    model = tiny.save_model(tmp_path / "model")
    return tiny.judged_run(tmp_path / "run", f"local:{model}")


def do(run: Run, recipe: str, *sets: str, **more: Any) -> TrainResult:
    """Train in this process."""
    return stages.train(recipe, run.path, in_process=True, set=(*QUICK, *sets), **more)


def weights_of(path: Path | str) -> dict[str, torch.Tensor]:
    """A checkpoint's parameters."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return {name: p.detach() for name, p in model.named_parameters()}


def base_of(run: Run) -> Path:
    """The folder of the run's policy."""
    return Path(run.manifest.cast["student"].model.removeprefix("local:"))


@pytest.mark.parametrize(
    "recipe", ["refit", "swift", "star-gate", "dpo", "step-dpo", "swift-anchored", "grpo", "kto"]
)
def test_a_learner_leaves_a_checkpoint(run: Run, recipe: str) -> None:
    result = do(run, recipe, *(("data.unit=turn",) if recipe == "kto" else ()))
    assert result.path == run.checkpoints_folder / recipe
    base, learnt = weights_of(base_of(run)), weights_of(result.path)
    assert base.keys() == learnt.keys()
    assert any(not torch.equal(base[name], learnt[name]) for name in base)
    words = transformers.AutoTokenizer.from_pretrained(result.path)
    assert words.chat_template == tiny.tokenizer().chat_template
    summary = json.loads((result.path / "training.json").read_text())
    assert (summary["recipe"], summary["run"]) == (recipe, run.manifest.id)
    assert (summary["base"], summary["judge"]) == (str(base_of(run)), "j")
    assert len([entry for entry in summary["log"] if "loss" in entry]) == 3
    assert not (result.path / "README.md").exists(), "the card is publish's"


@pytest.mark.parametrize(
    ("processes", "size"),
    [(1, 4), (1, 7), pytest.param(2, 4, marks=pytest.mark.exhaustive)],
)
def test_a_dry_run_of_kto_counts_the_steps_that_it_takes(
    run: Run, processes: int, size: int
) -> None:
    """Replies of weight 0 and one alone in the last batch are left out; of several processes also
    a last batch that they cannot share."""
    sets = ("data.unit=turn", "fit.max_steps=null", "fit.epochs=1", f"fit.batch_size={size}")
    name = "ddp" if processes > 1 else None
    asked = {"recipe": "kto", "run": run.path, "set": (*QUICK, *sets), "launch": name,
             "in_process": name is None}  # fmt: skip
    preview = stages.train(**asked, dry_run=True).preview
    (said,) = (line for line in preview if "optimiser steps: " in line)
    path = stages.train(**asked).path
    assert path is not None
    summary = json.loads((path / "training.json").read_text())
    assert summary["processes"] == processes
    rows, steps = summary["counts"]["rows"], summary["steps"]
    assert said.startswith(f"{steps} optimiser steps: {rows} rows (one per turn), ")


def test_refit_learns_what_was_rewarded(run: Run) -> None:
    """log pi of rewarded conversations rises, and the log follows it."""
    path = do(run, "refit", "fit.max_steps=12").path
    assert path is not None
    log = json.loads((path / "training.json").read_text())["log"]
    ratios = [entry["log_ratio"] for entry in log if "log_ratio" in entry]
    assert len(ratios) == 11, "every line but the first step's"
    assert ratios[-1] > ratios[0] > 0
    rewarded = [entry["log_pi_positive"] for entry in log if "log_pi_positive" in entry]
    assert len(rewarded) > 6
    assert not any("log_pi_negative" in entry for entry in log)


def test_swift_raises_its_objective_and_lowers_what_was_punished(run: Run) -> None:
    path = do(run, "swift", "fit.max_steps=9", "fit.learning_rate=0.003").path
    assert path is not None
    entries = json.loads((path / "training.json").read_text())["log"]
    assert any("log_pi_negative" in entry for entry in entries)
    job = Job.from_file(path / "recipe.yaml")
    rows = training_rows(
        launch.load_trainer(launch.locate_trainer("swift")).data(job), job.chat
    ).rows
    before, after = (log_pi(where, rows) for where in (base_of(run), path))
    change = [(row.weight, now - then) for row, now, then in zip(rows, after, before, strict=True)]
    assert sum(weight * moved for weight, moved in change) > 0, "equation (9) is maximised"
    assert sum(moved for weight, moved in change if weight < 0) < 0


def log_pi(where: Path, rows: Any) -> list[float]:
    """log pi of the policy's tokens of each row."""
    model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32)
    found = []
    for row in rows:
        ids, on = torch.tensor([row.tokens.ids]), torch.tensor(row.tokens.mask[1:])
        with torch.no_grad():
            each = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        found.append((each.gather(-1, ids[0, 1:, None])[:, 0] * on).sum().item())
    return found


def test_a_collapse_is_told_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    do(run, "swift", "fit.max_steps=6", "fit.learning_rate=1.0", "fit.max_grad_norm=0")
    told = capsys.readouterr().err
    assert told.count("warning: the policy has collapsed: log pi of the rewarded") == 1
    assert "lower fit.learning_rate" in told


def test_the_last_step_is_logged(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = do(run, "swift", "fit.log_every=100", "fit.max_steps=2").path
    assert path is not None
    log = json.loads((path / "training.json").read_text())["log"]
    assert [entry["step"] for entry in log if "loss" in entry] == [1, 2]
    assert "log_ratio" in log[1]
    told = capsys.readouterr().err
    assert "step 2/2" in told
    before = told.index("2 optimiser steps: 9 rows (one per conversation), 4 per step (4 x 1)")
    assert before < told.index("step 1/2"), "told before the first step"


def test_gibberish_is_half_a_nat_from_the_teacher() -> None:
    assert distil.StudentStart(student=1.0, teacher=0.4, chance=5.8).is_gibberish
    assert not distil.StudentStart(student=0.8, teacher=0.4, chance=5.8).is_gibberish
    assert distil.StudentStart(student=float("nan"), teacher=0.4, chance=5.8).is_gibberish


def test_star_gate_d_distils_the_newest_star_gate_checkpoint(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TrainError, match="convbench train star-gate"):
        do(run, "star-gate-d")
    teacher = do(run, "star-gate").path
    with pytest.raises(TrainError, match="the base has 2 layers"):
        do(run, "star-gate-d-first8")
    whole = do(run, "star-gate-d").path
    assert whole is not None
    assert len(transformers.AutoModelForCausalLM.from_pretrained(whole).model.layers) == 2, (
        "the default"
    )
    path = do(run, "star-gate-d-first8", "distil.student_layers=1").path
    assert path is not None
    student = transformers.AutoModelForCausalLM.from_pretrained(path)
    assert student.config.num_hidden_layers == len(student.model.layers) == 1
    kept = json.loads((path / "training.json").read_text())
    assert kept["teacher"] == str(teacher)
    assert kept["start"]["gibberish"], "half a model of random weights"
    assert kept["start"]["chance"] == pytest.approx(math.log(student.config.vocab_size))
    told = capsys.readouterr().err
    number = f"{kept['start']['student']:.2f} nats per token"
    assert f"warning: the student starts near chance: {number}" in told
    assert told.index("near chance") < told.rindex("step 1/3"), "before the first step"


def test_star_gate_d_with_an_adapter_on_the_student(run: Run) -> None:
    do(run, "star-gate")
    path = do(
        run, "star-gate-d", "distil.student_layers=null", "distil.lora_on=student",
        "fit.learning_rate=0.1",
    ).path  # fmt: skip
    assert path is not None
    assert (path / "adapter" / "adapter_config.json").exists()
    base, learnt = weights_of(base_of(run)), weights_of(path)
    changed = {name for name in base if not torch.allclose(base[name], learnt[name])}
    assert changed
    assert all("_proj" in name for name in changed)


def test_distillation_by_hand() -> None:
    # two words, student even, teacher 3 : 1, label the first word
    student = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    teacher = torch.tensor([[3.0, 1.0]], dtype=torch.float64).log()
    label = torch.tensor([0])
    entropy = 0.693147  # log 2
    apart = 0.75 * 0.405465 + 0.25 * -0.693147  # sum p log(p / 0.5)
    at_one = distil.distillation_loss(student, teacher, label, Distil(alpha=0.25, temperature=1.0))
    assert at_one.item() == pytest.approx(0.25 * entropy + 0.75 * apart, abs=1e-5)
    # at T = 2 the teacher is sqrt(3) : 1 = 0.633975 : 0.366025
    softer = 0.633975 * 0.237402 + 0.366025 * -0.311904
    at_two = distil.distillation_loss(student, teacher, label, Distil(alpha=0.5, temperature=2.0))
    assert at_two.item() == pytest.approx(0.5 * entropy + 0.5 * 4 * softer, abs=1e-5)


@pytest.mark.parametrize("recipe", ["swift", "dpo"])
def test_lora_is_merged_into_the_checkpoint(run: Run, recipe: str) -> None:
    from peft import PeftModel

    path = do(run, recipe, "lora.r=4", "fit.learning_rate=0.05").path
    assert path is not None
    base = transformers.AutoModelForCausalLM.from_pretrained(base_of(run))
    adapted = PeftModel.from_pretrained(base, path / "adapter")
    merged = transformers.AutoModelForCausalLM.from_pretrained(path)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        one, other = adapted(input_ids=ids).logits, merged(input_ids=ids).logits
        plain = adapted.get_base_model()
        with adapted.disable_adapter():
            before = plain(input_ids=ids).logits
    assert torch.allclose(one, other, atol=1e-5)
    assert not torch.allclose(before, other, atol=1e-3)


def saved_epochs(job: Job) -> list[Path]:
    return list(job.folder.glob("checkpoint-*"))


def test_an_interrupted_training_is_taken_up_where_it_stopped(run: Run, tmp_path: Path) -> None:
    sets = {"fit.max_steps": None, "fit.epochs": 2, "fit.save": "epoch", "fit.optimizer":
            "adamw_torch", "fit.learning_rate": 0.01, "fit.scheduler": "linear"}  # fmt: skip
    script = launch.load_trainer(launch.locate_trainer("swift"))
    kept = {**sets, "fit.save": "keep"}
    whole = Job.from_file(tiny.resolved(tmp_path / "whole", "swift", run, base_of(run), **kept))
    script.fit(whole, script.data(whole))
    assert len(saved_epochs(whole)) == 2, "they were asked to stay"

    class Stop(transformers.TrainerCallback):
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.epoch and state.epoch >= 1:
                raise KeyboardInterrupt

    job = Job.from_file(tiny.resolved(tmp_path / "half", "swift", run, base_of(run), **sets))
    data = script.data(job)
    trainer = weighted_sft.weighted_trainer(job, training_rows(data, job.chat).rows)
    trainer.add_callback(Stop)
    with pytest.raises(KeyboardInterrupt):
        fitting.run_training(trainer, job, StepCount(9, "conversation", job.recipe.fit))
    assert len(saved_epochs(job)) == 1
    script.fit(job, data)
    assert not saved_epochs(job), "they go once training is done"
    log = json.loads((job.folder / "training.json").read_text())["log"]
    steps = [entry["step"] for entry in log if "loss" in entry]
    assert steps == sorted(set(steps)), "no step is taken twice"
    one, other = weights_of(whole.folder), weights_of(job.folder)
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_a_second_training_does_not_touch_the_first(run: Run) -> None:
    first = do(run, "swift").path
    assert do(run, "swift").path == run.checkpoints_folder / "swift-2"
    with pytest.raises(TrainError, match="holds a checkpoint already"):
        do(run, "swift", out=first)


@pytest.mark.exhaustive
def test_the_script_runs_by_hand(run: Run, tmp_path: Path) -> None:
    """`python trainers/swift.py --recipe FILE`, nothing of convbench around it."""
    file = tiny.resolved(tmp_path / "by-hand", "swift", run, base_of(run))
    script = launch.locate_trainer("swift")
    env = launch.worker_environment(launch_spec(), 0) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), "--recipe", str(file)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "stdout is for results"
    assert "step 3/3" in done.stderr
    assert weights_of(file.parent).keys() == weights_of(base_of(run)).keys()
    config = json.loads((file.parent / "config.json").read_text())
    assert config.get("use_cache", True), "sampling from the checkpoint would be slow"


def launch_spec() -> Any:
    """The launch of one process."""
    from convbench import catalog
    from convbench.schema.recipe import LaunchSpec

    return catalog.load_spec(LaunchSpec, "launch", "none")


def test_train_starts_a_worker_and_relays_why_it_failed(run: Run) -> None:
    """In a process of its own; a rewarded conversation with a reward below 0 is refused there
    and here alike, so the failure is made by a model that only the worker finds broken."""
    (base_of(run) / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(TrainError) as caught:
        stages.train("swift", run.path, set=QUICK)
    text = str(caught.value)
    assert "\n" not in text
    assert "train.log" in text
    assert "header" in text.lower() or "safetensors" in text.lower(), text


def test_the_resolved_recipe_lies_with_the_checkpoint(run: Run) -> None:
    path = do(run, "swift", "weighting.clip=1.5").path
    assert path is not None
    written = yaml.safe_load((path / "recipe.yaml").read_text())
    assert written["run"] == "../.."
    assert written["model"] == str(base_of(run))
    assert written["weighting"]["clip"] == 1.5
    assert Job.from_file(path / "recipe.yaml").run.manifest.id == run.manifest.id


def test_dry_run_shows_and_writes_nothing(run: Run) -> None:
    result = do(run, "swift", dry_run=True)
    text = "\n".join(result.preview)
    assert "questions whose rewards do not differ: 33.3%" in text
    assert "omitted: 1 not in split train" in text
    assert text.count("weight ") == 3
    assert "weight +1.1547" in text
    assert "LOSS" in text
    assert (
        "3 optimiser steps: 9 rows (one per conversation), 4 per step (4 x 1), 3 steps per epoch"
        in text
    )
    assert not run.checkpoints_folder.exists()
    pairs = "\n".join(do(run, "dpo", dry_run=True).preview)
    assert "pairs: 2" in pairs
    assert "pairs dropped: 0" in pairs
    assert "'end q0 2<|eot_id|>'" in pairs
    assert "tied questions: 1 of 2 (ties: random, one of the equals is drawn)" in pairs
    assert "3 optimiser steps: 2 rows (one per pair)" in pairs


def test_what_train_refuses(run: Run) -> None:
    with pytest.raises(TrainError, match="convbench eval"):
        do(run, "refit", "trainer=null")
    with pytest.raises(TrainError, match="no config"):
        do(run, "swift", model="nowhere/at-all")
    with pytest.raises(SpecError, match="offloads the optimiser"):
        do(run, "swift", "fit.optimizer=sgd", launch="zero2")
    with pytest.raises(SpecError, match="learning_rat"):
        do(run, "swift", "fit.learning_rat=1")
