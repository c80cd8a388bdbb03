"""Shipped recipes and launch files hold the paper's values; commands and failures of workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from convbench import catalog
from convbench.errors import MissingDependency, SpecError, TrainError
from convbench.learn import launch as launching
from convbench.learn.train import choose_launch, split_sets
from convbench.options.shared import SpecOptions
from convbench.options.train import TrainOptions
from convbench.schema.recipe import Fit, LaunchSpec, Recipe


def recipe(name: str, **sets: object) -> Recipe:
    """A shipped recipe."""
    return catalog.load_spec(Recipe, "recipes", name, sets=sets)


def launch(name: str, **sets: object) -> LaunchSpec:
    """A shipped launch file."""
    return catalog.load_spec(LaunchSpec, "launch", name, sets=sets)


@pytest.mark.parametrize("name", catalog.spec_files("recipes"))
def test_every_recipe_loads_and_has_its_script(name: str) -> None:
    found = recipe(name)
    launch(found.launch)
    if found.trainer is not None:
        module = launching.load_trainer(launching.locate_trainer(found.trainer))
        assert module.__doc__, "a script says what it maximises"


@pytest.mark.parametrize("name", ["refit", "swift"])
def test_table_26(name: str) -> None:
    fit = recipe(name).fit
    assert (fit.learning_rate, fit.epochs, fit.batch_size, fit.accumulation) == (3e-5, 4, 8, 4)
    assert (fit.gradient_checkpointing, fit.log_every) == (True, 5)
    assert (fit.save, fit.save_limit) == ("epoch", 4)
    assert recipe("swift").weighting.scale, "rl_reweight: std"


def test_table_27() -> None:
    found = recipe("star-gate-d")
    assert found.distil is not None
    assert (found.distil.student_layers, found.distil.lora_on) == (None, "teacher")
    literal = recipe("star-gate-d-first8").distil
    assert literal == found.distil.model_copy(update={"student_layers": 8})
    assert (found.distil.alpha, found.distil.temperature) == (0.5, 2.0)
    assert found.lora is not None
    assert (found.lora.r, found.lora.alpha, found.lora.dropout) == (8, 16, 0.05)
    assert len(found.lora.target_modules) == 7
    fit = found.fit
    assert (fit.learning_rate, fit.epochs, fit.batch_size, fit.accumulation) == (3e-6, 2, 4, 4)
    assert found.launch == "zero0"


TABLE_24 = {
    "compute_environment": "LOCAL_MACHINE", "debug": False, "distributed_type": "DEEPSPEED",
    "downcast_bf16": "no", "enable_cpu_affinity": False, "machine_rank": 0,
    "main_training_function": "main", "mixed_precision": "bf16", "num_machines": 1,
    "num_processes": 2, "rdzv_backend": "static", "same_network": True,
    "tpu_use_cluster": False, "tpu_use_sudo": False, "use_cpu": False,
}  # fmt: skip
DEEPSPEED_24 = {
    "gradient_accumulation_steps": 4, "offload_optimizer_device": "cpu",
    "offload_param_device": "cpu", "zero3_init_flag": False, "zero3_save_16bit_model": True,
    "zero_stage": 2,
}  # fmt: skip


def test_table_24_with_the_recipes_of_table_26() -> None:
    fit = recipe("swift").fit
    found = launching.accelerate_config(launch("zero2"), fit, bf16=True)
    deepspeed = found.pop("deepspeed_config")
    assert found == TABLE_24
    # filled in by the trainer from the recipe, where it is Table 24's 1.0
    assert deepspeed.pop("gradient_clipping") == "auto"
    assert fit.max_grad_norm == 1.0
    assert deepspeed == DEEPSPEED_24


def test_table_25_with_the_recipe_of_table_27() -> None:
    found = launching.accelerate_config(launch("zero0"), recipe("star-gate-d").fit, bf16=True)
    deepspeed = found.pop("deepspeed_config")
    assert deepspeed["zero_stage"] == 0
    assert deepspeed["offload_optimizer_device"] == deepspeed["offload_param_device"] == "none"
    assert deepspeed["gradient_accumulation_steps"] == 4


def test_commands(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    script = launching.locate_trainer("swift")
    alone = launching.launch_command(launch("none"), script, file, Fit(), gpus=0)
    assert alone == [sys.executable, str(script), "--recipe", str(file)]
    many = launch("ddp", **{"accelerate.num_machines": 2, "accelerate.num_processes": 16,
                            "accelerate.main_process_ip": "10.0.0.1"})  # fmt: skip
    parts = launching.launch_command(many, script, file, Fit(), gpus=8)
    assert parts[1:3] == ["-m", "accelerate.commands.launch"]
    written = yaml.safe_load((tmp_path / "accelerate.yaml").read_text())
    assert parts[3:5] == ["--config_file", str(tmp_path / "accelerate.yaml")]
    assert (written["num_machines"], written["num_processes"]) == (2, 16)
    assert written["main_process_ip"] == "10.0.0.1"
    assert "main_process_port" not in written
    assert written["mixed_precision"] == "bf16"
    second = launch("ddp", **{"accelerate.machine_rank": 1})
    parts = launching.launch_command(second, script, file, Fit(), gpus=8)
    assert parts[4] == str(tmp_path / "accelerate-1.yaml"), "machines may share the folder"
    again = yaml.safe_load((tmp_path / "accelerate.yaml").read_text())
    assert again == written


def test_a_missing_package_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*names: str) -> None:
        def found(name: str) -> object:
            return None if name in names else object()

        monkeypatch.setattr("importlib.util.find_spec", found)

    zero = launch("zero2")
    plain, distilled = recipe("swift"), recipe("star-gate-d")
    missing("deepspeed", "peft", "bitsandbytes")
    launching.check_installed(launch("ddp"), plain)
    with pytest.raises(MissingDependency, match=r"deepspeed.*\[train\]"):
        launching.check_installed(zero, plain)
    with pytest.raises(MissingDependency, match="peft"):
        launching.check_installed(launch("ddp"), distilled)
    missing("bitsandbytes")
    launching.check_installed(zero, distilled)
    assert distilled.lora is not None
    quantized = distilled.lora.model_copy(update={"quantize": "4bit"})
    with pytest.raises(MissingDependency, match=r"bitsandbytes.*\[qlora\]"):
        launching.check_installed(zero, distilled.model_copy(update={"lora": quantized}))


def test_a_launch_that_does_not_fit_this_machine_falls_back_and_says_so() -> None:
    options = TrainOptions("swift")
    chosen, notes = choose_launch(options, recipe("swift"), {}, gpus=0)
    assert chosen.name == "none"
    assert "asks for 2 accelerators and 0 are here" in notes[0]
    chosen, notes = choose_launch(options, recipe("swift"), {}, gpus=2)
    assert (chosen.name, notes) == ("zero2", [])
    insisted = TrainOptions("swift", launch="ddp")
    assert choose_launch(insisted, recipe("swift"), {}, gpus=0)[0].name == "ddp"


def test_no_note_and_no_launch_puts_two_processes_on_one_accelerator() -> None:
    chosen, (note,) = choose_launch(TrainOptions("swift"), recipe("swift"), {}, gpus=1)
    assert chosen.name == "none"
    typed = note.partition("here: --launch ")[2].rstrip(")").split()
    options = TrainOptions("swift", launch=typed[0])
    with pytest.raises(TrainError, match="several would share one; expected --launch zero2 --set"):
        choose_launch(options, recipe("swift"), {}, gpus=1)
    assert typed[1] == "--set"
    sets = split_sets(typed[2:])[1]
    assert choose_launch(options, recipe("swift"), sets, gpus=1)[0].process_count == 1


def test_a_launch_that_will_not_run_refuses_nothing() -> None:
    """The recipe's own offloads the optimiser, which takes AdamW only."""
    sgd = recipe("swift", **{"fit.optimizer": "sgd"})
    assert choose_launch(TrainOptions("swift"), sgd, {}, gpus=0)[0].name == "none"
    for options, gpus in ((TrainOptions("swift"), 2), (TrainOptions("swift", launch="zero2"), 0)):
        with pytest.raises(SpecError, match="offloads the optimiser"):
            choose_launch(options, sgd, {}, gpus=gpus)


@pytest.mark.parametrize("name", ["zero0", "zero2", "zero3"])
def test_deepspeed_on_several_machines_is_started_by_each_of_them(name: str) -> None:
    """accelerate would start pdsh without a list of hosts, each machine as the first."""
    options = TrainOptions("swift", launch=name)
    found, _ = choose_launch(options, recipe("swift"), {}, gpus=8)
    assert found.accelerate is not None
    second = found.model_copy(
        update={
            "accelerate": {
                **found.accelerate, "num_machines": 3, "num_processes": 6, "machine_rank": 1,
                "main_process_ip": "10.0.0.1",
            }
        }
    )  # fmt: skip
    written = launching.accelerate_config(second, Fit(), bf16=True)
    assert written["deepspeed_config"]["deepspeed_multinode_launcher"] == "standard"
    assert (written["num_machines"], written["num_processes"]) == (3, 6)
    assert (written["machine_rank"], written["main_process_ip"]) == (1, "10.0.0.1")
    alone = launching.accelerate_config(found, Fit(), bf16=True)
    assert "deepspeed_multinode_launcher" not in alone["deepspeed_config"]
    sets = {"accelerate.deepspeed_config.deepspeed_multinode_launcher": "pdsh"}
    with pytest.raises(SpecError, match=r"'pdsh', which needs a file of hosts.*expected standard"):
        choose_launch(options, recipe("swift"), sets, gpus=8)


def test_sets_are_sorted() -> None:
    pairs = ("fit.epochs=1", "recipe.weighting.clip=2", "launch.num_processes=4")
    assert split_sets(pairs) == (
        {"fit.epochs": 1, "weighting.clip": 2},
        {"accelerate.num_processes": 4},
    )
    assert SpecOptions(sets=pairs).sets == pairs


def test_unknown_scripts_are_named() -> None:
    with pytest.raises(SpecError, match=r"'swyft'.*swift"):
        launching.locate_trainer("swyft")


def worker(tmp_path: Path, code: str) -> str:
    """Run code as a worker; return why it is said to have failed."""
    with pytest.raises(TrainError) as caught:
        launching.run_command([sys.executable, "-c", code], {}, tmp_path / "log", Fit(batch_size=8))
    return str(caught.value)


def test_a_workers_last_words(tmp_path: Path) -> None:
    told = worker(tmp_path, "raise SystemExit('convbench: error: rewards are equal; judge')")
    assert told.startswith("rewards are equal; judge (full output:")
    raised = worker(tmp_path, "print('[rank0]: ValueError: too short'); raise SystemExit(1)")
    assert "ValueError: too short" in raised
    mute = worker(tmp_path, "raise SystemExit(7)")
    assert "exit code 7" in mute
    assert (tmp_path / "log").read_text()


def test_out_of_memory_says_what_to_change(tmp_path: Path) -> None:
    code = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"
    assert "fit.batch_size=4 --set fit.accumulation=8" in worker(tmp_path, code)
    killed = worker(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert "out of memory" in killed
