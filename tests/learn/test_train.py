"""`train`: folders, resuming, dry runs, launches, the papers' tables, and SWEET's stages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import SpecError, TrainError
from convbench.learn.memory import Cards
from convbench.learn.train import train
from convbench.options.shared import SpecOptions
from convbench.schema.recipe import LaunchSpec, Recipe
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.training import QUICK, Train
from tests.support.later import later

torch = later("torch")
EPOCHS = {"fit.max_steps": None, "fit.epochs": 3, "fit.save": "epoch"}


def recipe_of(name: str) -> Recipe:
    return catalog.load_spec(Recipe, "recipes", name)


def weights_of(folder: Path | None) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(str(folder) + "/model.safetensors"))


def begin(folder: Path, out: Path) -> None:
    """Leave what a training that was killed after its first epoch leaves."""
    out.mkdir()
    (out / "recipe.yaml").write_text((folder / "recipe.yaml").read_text())
    (out / "checkpoint-3").mkdir()
    (out / "checkpoint-3" / "trainer_state.json").write_text("{}")


# folders


def test_train_out_never_resumes_another_recipe(trained: Train, tmp_path: Path) -> None:
    done = trained("swift", out="done")
    assert done.path is not None
    begin(done.path, tmp_path / "out")
    with pytest.raises(TrainError, match="another training than refit"):
        trained("refit", out="out")
    with pytest.raises(TrainError, match="another training than swift"):
        trained("swift", out="out", sets={"fit.learning_rate": 0.2})
    with pytest.raises(TrainError, match="holds a checkpoint already"):
        trained("swift", out="done")


def test_train_takes_the_next_folder_of_the_run(trained: Train, run: Run) -> None:
    assert [trained("swift").path, trained("swift").path] == [
        run.checkpoints_folder / "swift", run.checkpoints_folder / "swift-2",
    ]  # fmt: skip


@pytest.mark.parametrize(("save", "left"), [("keep", 3), ("epoch", 0)])
def test_train_keeps_epochs_that_are_to_stay(trained: Train, save: str, left: int) -> None:
    result = trained("swift", sets={**EPOCHS, "fit.save": save})
    assert result.path is not None
    assert len(list(result.path.glob("checkpoint-*"))) == left


@pytest.mark.slow
def test_train_killed_after_an_epoch_goes_on_and_ends_the_same(
    trained: Train, run: Run, tmp_path: Path
) -> None:
    """Killed by SIGKILL once an epoch is saved; the same command then takes that epoch's state."""
    sets = {**EPOCHS, "fit.epochs": 40, "fit.learning_rate": 0.001}
    whole = trained("swift", out="whole", sets=sets)
    pairs = [f"{k}={json.dumps(v)}" for k, v in {**QUICK, **sets}.items()]
    code = f"""
from pathlib import Path
from convbench.options.shared import SpecOptions
from convbench.store.run import Run
from convbench.learn.train import train
specs = SpecOptions(sets=tuple({pairs!r}))
train("swift", [Run.open(Path({str(run.path)!r}))], out=Path({str(tmp_path / "out")!r}),
      specs=specs, in_process=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(tmp_path.glob("out/checkpoint-*/trainer_state.json")):
        assert time.monotonic() < until
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "training.json").exists()
    again = trained("swift", out="out", sets=sets)
    assert again.path is not None
    first, second = weights_of(whole.path), weights_of(again.path)
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)
    training = json.loads((again.path / "training.json").read_text())
    steps = [entry["step"] for entry in training["log"] if "loss" in entry]
    assert steps == sorted(set(steps))
    assert len(steps) == training["steps"] == 120


def test_train_on_another_number_of_cards_says_why_it_cannot_go_on(tmp_path: Path) -> None:
    from trainers.common import last_epoch

    assert last_epoch(tmp_path, 1) is None
    torn, whole = tmp_path / "checkpoint-9", tmp_path / "checkpoint-6"
    for folder, text in ((torn, '{"a"'), (whole, "{}")):
        folder.mkdir()
        (folder / "trainer_state.json").write_text(text)
    assert last_epoch(tmp_path, 1) == last_epoch(tmp_path, 4) == str(whole), "DDP goes on"
    (whole / "global_step6").mkdir()
    for rank in range(2):
        (whole / "global_step6" / f"zero_pp_rank_{rank}_optim_states.pt").touch()
    assert last_epoch(tmp_path, 2) == str(whole)
    with pytest.raises(TrainError, match=r"2 processes saved it.*found 1"):
        last_epoch(tmp_path, 1)


# dry runs


def test_dry_run_shows_counts_steps_memory_launch_and_rows(trained: Train, run: Run) -> None:
    result = trained("swift", dry_run=True, sets={"fit.batch": 64, "fit.batch_size": 8})
    text = "\n".join(result.preview)
    for line in (
        "9 conversations about 3 questions, judge j, metric reward",
        "omitted: 1 not in split train",
        "questions whose rewards do not differ: 33.3%", "rows: 9", "launch: none, 1 process(es)",
        "3 optimiser steps: 9 rows (one per conversation), 64 per step (8 x 8)",
        "run-q0-2: weight +1.1547",
    ):  # fmt: skip
        assert line in text
    assert result.path is None
    assert not run.checkpoints_folder.exists(), "nothing is written"


def test_dry_run_for_cards_that_are_not_here_takes_the_papers_launch(trained: Train) -> None:
    result = trained("swift", dry_run=True, cards=Cards(2, 80 * 10**9))
    assert result.launch is not None
    assert (result.launch.name, result.launch.process_count) == ("zero2", 2)
    one = trained("swift", dry_run=True, cards=Cards(1, 80 * 10**9))
    assert one.launch is not None
    assert one.launch.name == "none"
    assert any("'zero2' asks for 2 accelerators" in note for note in one.notes)


def test_dry_run_of_a_mixture_of_experts_says_that_its_size_is_unknown(
    trained: Train, tmp_path: Path
) -> None:
    model = tiny.save_model(tmp_path / "m")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_experts": 128}))
    result = trained("swift", dry_run=True, model=str(model), cards=Cards(2, 80 * 10**9))
    assert any("size cannot be told" in line for line in result.preview)


def test_dry_run_of_pairs_shows_what_is_learnt(trained: Train) -> None:
    text = "\n".join(trained("step-dpo", dry_run=True).preview)
    assert "pairs: 4" in text
    assert "tied questions: 1 of 2" in text
    assert "LOSS" in text
    assert "rejected" in text


def test_a_step_that_processes_cannot_share_is_refused(trained: Train) -> None:
    with pytest.raises(TrainError, match=r"fit\.batch: found 3.*expected 2 or 4"):
        trained("swift", dry_run=True, launch="ddp", sets={"fit.batch": 3})


# the papers' tables


@pytest.mark.parametrize("name", ["refit", "swift", "star-gate"])
def test_table_24_and_26(name: str) -> None:
    recipe = recipe_of(name)
    spec = catalog.load_spec(LaunchSpec, "launch", recipe.launch)
    assert spec.accelerate is not None
    deepspeed = spec.accelerate["deepspeed_config"]
    assert (deepspeed["zero_stage"], spec.process_count) == (2, 2)
    assert deepspeed["offload_optimizer_device"] == deepspeed["offload_param_device"] == "cpu"
    fit = recipe.fit
    assert (fit.learning_rate, fit.epochs, fit.batch_size, fit.batch) == (3e-5, 4, 8, 8 * 4 * 2)
    assert fit.arguments["max_grad_norm"] == 1.0
    assert fit.gradient_checkpointing
    assert recipe.data.unit == "turn"


def test_table_25_and_27() -> None:
    recipe = recipe_of("star-gate-d")
    spec = catalog.load_spec(LaunchSpec, "launch", recipe.launch)
    assert spec.accelerate is not None
    assert spec.accelerate["deepspeed_config"]["zero_stage"] == 0
    fit, distil = recipe.fit, recipe.distil
    assert distil is not None
    assert (fit.learning_rate, fit.epochs, fit.batch_size, fit.batch) == (3e-6, 2, 4, 4 * 4 * 2)
    assert (distil.alpha, distil.temperature, distil.student_layers) == (0.5, 2.0, None)
    assert recipe_of("star-gate-d-first8").distil.student_layers == 8  # type: ignore[union-attr]


def test_sweet_has_the_papers_values() -> None:
    fit, args = recipe_of("sweet").fit, recipe_of("sweet").args
    assert (fit.learning_rate, fit.epochs, fit.batch, args["critic"]) == (2e-7, 1, 8, {"epochs": 4})
    assert (args["candidates"], args["pairs"], args["beta"], args["nll"]) == (16, 4, 0.1, 0.01)
    assert fit.arguments == {
        "adam_beta1": 0.9, "adam_beta2": 0.95, "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1}, "warmup_steps": 0.03, "max_grad_norm": 1.0,
    }  # fmt: skip


# programs


@pytest.mark.slow
def test_a_program_is_started_by_hand_on_a_checkpoints_folder(
    trained: Train, tmp_path: Path
) -> None:
    """`accelerate launch trainers/weighted_sft.py CHECKPOINT` needs recipe and rows alone."""
    from convbench.learn.launch import locate_program

    done = trained("swift", out="done")
    assert done.path is not None
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "recipe.yaml").write_text((done.path / "recipe.yaml").read_text())
    (done.path / "rows").rename(folder / "rows")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--cpu", str(locate_program("weighted_sft")), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    first, second = weights_of(done.path), weights_of(folder)
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["swift", "step-dpo"])
def test_two_processes_do_what_one_does(trained: Train, recipe: str) -> None:
    """Over gloo, where the rows divide."""
    sets = {"fit.max_steps": 2}
    alone = trained(recipe, out="one", sets=sets)
    sets["fit.batch_size"] = 2
    two = trained(recipe, out="two", launch="ddp", sets=sets, in_process=False)
    assert two.path is not None
    assert json.loads((two.path / "training.json").read_text())["processes"] == 2
    first, second = weights_of(alone.path), weights_of(two.path)
    assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)


def test_a_program_that_fails_says_why_in_a_line(trained: Train, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "if __name__ == '__main__':\n    raise SystemExit('convbench: error: no such thing')\n"
    )
    with pytest.raises(TrainError, match=r"^no such thing \(full output"):
        trained("swift", in_process=False, sets={"trainer": str(tmp_path / "mine.py")})


def test_unknown_recipes_and_those_without_a_trainer_are_refused(run: Run) -> None:
    with pytest.raises(TrainError, match="trains nothing"):
        train("refit", [run], specs=SpecOptions(sets=("trainer=null",)))
    with pytest.raises(SpecError):
        train("gone", [run], specs=SpecOptions())


@pytest.mark.parametrize("setting", ["fit.packing=true", "loss.name=ppo"])
def test_settings_that_a_learner_of_pairs_does_not_use_are_refused(setting: str, run: Run) -> None:
    with pytest.raises(SpecError, match=r"step-dpo.*trainer preference"):
        train("step-dpo", [run], specs=SpecOptions(sets=(setting,)))
