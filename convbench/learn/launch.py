"""Start a program of `trainers/` on a launch's processes, and say in a line why it failed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from convbench import catalog
from convbench.catalog.read import read_yaml
from convbench.engine.jobs import stop_on_interrupt
from convbench.engine.session import Session
from convbench.errors import MissingDependency, SpecError, TrainError
from convbench.learn.memory import Cards, Memory, choose_launch, estimate_memory, in_bf16, shape_of
from convbench.learn.rows import ABOUT, ROWS, Material, read_about, write_rows
from convbench.learn.steps import batches_of
from convbench.models.devices import VISIBLE, list_devices, placement_of
from convbench.models.vllm import free_port
from convbench.models.weights_path import content_hash, weights_of
from convbench.options.shared import CallOptions, SpecOptions, parse_devices
from convbench.schema.recipe import Fit, LaunchSpec, Recipe
from convbench.store.checkpoint import RECIPE, Checkpoint
from convbench.store.jsonl import write_atomic
from convbench.util.guard import guard_command
from convbench.util.install import with_extra
from convbench.util.regular import open_to_append

TAIL_LINES = 200
"""Number of last lines of a program that are searched for its failure."""
GUARDED = "CONVBENCH_GUARDED"
"""Environment variable, set for processes that must not outlive their parent."""
ERROR_PREFIX = "convbench: error: "
"""Prefix of the error line with which a program of `trainers/` ends."""
_RAISED = re.compile(r"(\[rank\d+\]:\s*)?(?!.*ChildFailedError)[\w.]+(Error|Exception): ")
_MEMORY = re.compile(r"out of memory|can't allocate memory|OutOfMemoryError", re.IGNORECASE)


@dataclass
class Context:
    """What a training needs besides its recipe."""

    model_path: str
    """Folder or Hub id of the model to start from."""
    limit: int | None
    """Most tokens of a row."""
    calls: CallOptions
    specs: SpecOptions
    named: str | None = None
    """The launch that the user named; None chooses."""
    sets: dict[str, Any] = field(default_factory=dict)
    """Settings of the launch, by dotted key."""
    cards: Cards | None = None
    """Cards that a dry run plans for; None trains here."""
    locks: list[int] = field(default_factory=list)
    """Descriptors of the locks taken so far, which the program inherits."""
    in_process: bool = False
    """Whether to train in this process if one is enough and it uses no accelerator."""
    notes: list[str] = field(default_factory=list)
    session: Session = field(default_factory=Session)


def trainer_folder() -> Path:
    """Return the folder of the programs, in the wheel or the checkout."""
    package = Path(str(resources.files("convbench")))
    inside = package / "trainers"
    return inside if inside.is_dir() else package.parent / "trainers"


def locate_program(trainer: str) -> Path:
    """Return the path of a program: one of `trainers/` by its stem, or a path that ends in `.py`.

    Raise SpecError if there is no such file.
    """
    path = Path(trainer) if trainer.endswith(".py") else trainer_folder() / f"{trainer}.py"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in trainer_folder().glob("[a-z]*.py")))
        raise SpecError(f"trainer {trainer!r}: found no such program; expected one of {known}")
    return path.resolve()


def load_module(path: Path) -> Any:
    """Run a file and return it as a module, known by its name as imported ones are (a dataclass
    looks its module up). Raise SpecError if there is no such file."""
    name = f"convbench_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SpecError(f"{path}: found no such file; expected a Python file")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trainer_devices(calls: CallOptions) -> tuple[str, ...] | None:
    """Return the names of the devices for training, as CUDA_VISIBLE_DEVICES takes them; None if the
    options name none, which means all."""
    placement = placement_of(parse_devices(calls.devices), "trainer")
    return None if placement is None else placement.names


def cards_here(calls: CallOptions) -> Cards:
    """Return the accelerators that training may use, and this machine's memory; without torch."""
    names, devices = trainer_devices(calls), list_devices()
    chosen = [device for device in devices if names is None or device.name in names]
    smallest = min((device.memory for device in chosen), default=0)
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Cards(len(chosen) if names is None else len(names), smallest, host)


def check_installed(recipe: Recipe, launch: LaunchSpec | None = None) -> None:
    """Raise MissingDependency if a package that the training needs is missing; import none."""
    needed = dict.fromkeys(("torch", "transformers", "accelerate", "trl"), "train")
    if recipe.lora is not None:
        needed["peft"] = "train"
        needed |= {"bitsandbytes": "qlora"} if recipe.lora.quantize == "4bit" else {}
    if launch is not None and (launch.accelerate or {}).get("deepspeed_config"):
        needed["deepspeed"] = "train"
    for name, extra in needed.items():
        if importlib.util.find_spec(name) is None:
            raise MissingDependency(name, needed_for="training", install=with_extra(extra))


def read_recipe(folder: Path) -> Recipe:
    """Return the resolved recipe of a checkpoint's folder. Raise TrainError if it names no
    model."""
    file = folder / RECIPE
    recipe = catalog.check_spec(Recipe, read_yaml(file), str(file))
    if recipe.model is None:
        raise TrainError(f"{file}: found no `model`; expected a recipe that convbench train wrote")
    return recipe.model_copy(update={"model": weights_of(recipe.model) or recipe.model})


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe into a checkpoint's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    values = yaml.safe_dump(portable(recipe, folder).model_dump(mode="json"), sort_keys=False)
    write_atomic(folder / RECIPE, f"# The resolved recipe of this checkpoint.\n{values}".encode())


def portable(recipe: Recipe, folder: Path) -> Recipe:
    """Return the resolved recipe with a relative path to its run if that contains the folder."""
    run, folder = Path(recipe.run or ""), folder.resolve()
    is_inside = bool(recipe.run) and folder.is_relative_to(run)
    where = os.path.relpath(run, folder) if is_inside else recipe.run
    return recipe.model_copy(update={"run": where})


def fit_rows(
    folder: Path, recipe: Recipe, material: Material, context: Context, program: str | None = None
) -> LaunchSpec:
    """Write recipe and rows into a checkpoint's folder, run its program there, and return the
    launch that was taken.

    A training that began goes on with the rows that it has. Raise TrainError if it fails.
    """
    write_recipe(folder, recipe)
    if (folder / ROWS / ABOUT).exists() and any(folder.glob("checkpoint-*")):
        about = read_about(folder)
    else:
        base = {"base": recipe.model, "base_fingerprint": content_hash(context.model_path)}
        about = write_rows(folder, material, context.limit, base | material.figures(recipe.data))
    launch, _ = pick_launch(recipe, context, tuple(about["longest"]))
    start_program(program or recipe.trainer or "", folder, recipe, context, launch)
    if not Checkpoint(folder).is_finished:
        raise TrainError(f"{folder}: the program ended without a checkpoint; see train.log there")
    return launch


def pick_launch(
    recipe: Recipe, context: Context, longest: tuple[int, int]
) -> tuple[LaunchSpec, Memory | None]:
    """Return (the launch, its memory if the model's size can be told); notes go to the context.

    It is the one that the user named, else what `choose_launch` takes, with a line if the recipe
    asks for another. Raise TrainError if processes of a named launch would share an accelerator, or
    if nothing fits; in a dry run that is a note.
    """
    cards, is_dry = context.cards or cards_here(context.calls), context.cards is not None
    shape = shape_of(context.model_path)
    if context.named not in (None, "auto"):
        launch = _load_launch(str(context.named), context)
        here = launch.process_count // int((launch.accelerate or {}).get("num_machines") or 1)
        if 0 < cards.count < here and not is_dry:
            raise TrainError(
                f"launch {launch.name!r} starts {here} processes here and has {cards.count} "
                f"accelerators: several would share one; expected --launch {launch.name} --set "
                f"launch.num_processes={cards.count}, or more with --devices"
            )
        bf16 = in_bf16(recipe.fit, cards.count)
        return launch, estimate_memory(shape, recipe, launch, *longest, bf16) if shape else None
    names = {"none", "ddp", "zero2", "zero3", recipe.launch} - {"auto"}
    launches = {name: _load_launch(name, context) for name in names}
    launch, memory, fits = choose_launch(shape, recipe, cards, launches, longest)
    if not fits and memory is not None:
        line = (
            f"{memory.line()}: more than {cards.line()} hold, however it is shared; expected a "
            "machine with more, or an adapter: --set lora.r=16"
        )
        if not is_dry:
            raise TrainError(f"recipe {recipe.name!r}: {line}")
        context.notes.append(line)
    wanted = launches.get(recipe.launch)
    if wanted is not None and launch != wanted:
        why = "it would not fit" if wanted.process_count <= cards.count else f"found {cards.line()}"
        context.notes.append(
            f"launch {wanted.name!r} asks for {wanted.process_count} accelerators: {why}; training "
            f"with {launch.name!r} in {launch.process_count} process(es)"
        )
    return launch, memory


def start_program(
    name: str, folder: Path, recipe: Recipe, context: Context, launch: LaunchSpec | None = None
) -> None:
    """Run `PROGRAM FOLDER` on the launch's processes, without one in a single process; its output
    goes to stderr and to `FOLDER/train.log`.

    However this process ends, every process of the program ends too. Raise TrainError with the
    reason if it fails.
    """
    program, settings = locate_program(name), launch.accelerate if launch is not None else None
    gpus, names = cards_here(context.calls).count, trainer_devices(context.calls)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not gpus:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else DeepSpeed writes to stdout
    if context.in_process and settings is None and names is None and not gpus:
        load_module(program).run(folder, read_recipe(folder))
        return
    env = {**os.environ, "PYTHONUNBUFFERED": "1", GUARDED: "1"}
    parents = str(trainer_folder().parent), os.environ.get("PYTHONPATH")
    env["PYTHONPATH"] = os.pathsep.join(filter(None, parents))
    if names is not None:
        env[VISIBLE] = ",".join(names)
    command = [sys.executable]
    if launch is not None and settings is not None:
        check_installed(recipe, launch)
        config = _accelerate_config(settings, launch.process_count, recipe.fit, gpus)
        if names is not None and int(config.get("num_machines") or 1) == 1:
            config.setdefault("main_process_port", free_port())  # two trainings need two
        file = folder / "accelerate.yaml"
        write_atomic(file, yaml.safe_dump(config).encode())
        command += ["-m", "accelerate.commands.launch", "--config_file", str(file)]
    elif gpus > 1:  # else Trainer would spread the batch over all that it sees
        env[VISIBLE] = env.get(VISIBLE, "0").split(",")[0]
    log, last = folder / "train.log", deque[str](maxlen=TAIL_LINES)
    with (
        open_to_append(log) as file_of_log,
        subprocess.Popen(  # noqa: S603 - our own interpreter and program
            guard_command([*command, str(program), str(folder)]),
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=context.locks,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with stop_on_interrupt(process.stdin.close):
                for line in process.stdout:
                    last.append(line.rstrip())
                    file_of_log.write(line.encode())
                    sys.stderr.write(line)
        finally:
            process.stdin.close()
            process.wait()
    if process.returncode != 0:
        why = _failure_reason(last, process.returncode, recipe.fit)
        raise TrainError(f"{why} (full output: {log})")


def _failure_reason(lines: Iterable[str], code: int, fit: Fit) -> str:
    """Return a program's own error line, else advice if memory ran out or the system killed it,
    else what was raised first."""
    lines = [line for line in lines if line.strip()]
    own = next((line for line in lines if ERROR_PREFIX in line), None)
    if own is not None:
        return own.split(ERROR_PREFIX, 1)[1]
    if any(map(_MEMORY.search, lines)) or code in (-9, 137):
        smaller = max(1, fit.batch_size // 2)
        keep = "" if fit.batch else f" --set fit.accumulation={2 * fit.accumulation}"
        return (
            f"the worker ran out of memory with fit.batch_size {fit.batch_size}; try --set "
            f"fit.batch_size={smaller}{keep} (the same step), --set "
            "fit.gradient_checkpointing=true, --set data.max_length=2048, --set lora.r=8, or "
            "--launch zero3"
        )
    raised = next((line for line in lines if _RAISED.match(line)), " / ".join(lines[-3:]))
    return f"the worker failed with exit code {code}: {raised}"


def _load_launch(name: str, context: Context) -> LaunchSpec:
    """Return a launch spec; settings apply to those that start a launcher."""
    sets = context.sets if name != "none" else {}
    return catalog.load_spec(LaunchSpec, "launch", name, specs=context.specs.folders, sets=sets)


def _accelerate_config(
    accelerate: dict[str, Any], processes: int, fit: Fit, gpus: int
) -> dict[str, Any]:
    """Return the configuration file of `accelerate launch`: that of the launch spec, without its
    null values; precision, accumulation and clipping are the recipe's."""
    config = {name: value for name, value in accelerate.items() if value is not None}
    config["mixed_precision"] = "bf16" if in_bf16(fit, gpus) else "no"
    if "deepspeed_config" in config:
        config["deepspeed_config"] = {
            **config["deepspeed_config"],
            "gradient_accumulation_steps": batches_of(fit, processes)[1],
            "gradient_clipping": "auto",  # the trainer fills it in; a 0 here would become 1.0
        }
        if int(config.get("num_machines") or 1) > 1:  # else accelerate starts pdsh, with no hosts
            config["deepspeed_config"].setdefault("deepspeed_multinode_launcher", "standard")
    return config
