"""Start a trainer script on a launch spec's processes and machines, and explain its failures."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from convbench.engine.jobs import stop_on_interrupt
from convbench.errors import MissingDependency, SpecError, TrainError
from convbench.models.devices import VISIBLE, list_devices, placement_of
from convbench.options.shared import CallOptions, parse_devices
from convbench.schema.recipe import Fit, LaunchSpec, Recipe
from convbench.store.jsonl import write_atomic
from convbench.util.guard import guard_command
from convbench.util.install import with_extra
from convbench.util.regular import open_to_append

OLD_S = 900.0
"""Seconds after which no compilation is still running, on other machines that share the folder
included."""


def remove_stale_locks(note: Callable[[str], None], env: Mapping[str, str] = os.environ) -> None:
    """Delete compilation locks that no process here holds and that are 15 minutes old, each with a
    note.

    A newer one, which another machine may hold, is left and noted. Locks are those of torch's
    extensions: below TORCH_EXTENSIONS_DIR, else in the user's cache.
    """
    for lock in _lock_files(env):
        try:
            status = lock.stat()
            if _is_held(status):
                continue
            if time.time() - status.st_mtime < OLD_S:
                note(
                    f"{lock}: no process here holds this lock, and training waits for it. If no "
                    "other machine is compiling there, a killed training left it: remove it"
                )
                continue
            lock.unlink()
        except OSError:  # removed meanwhile
            continue
        note(f"{lock}: removed; a training that was killed while it compiled left this lock")


def _lock_files(env: Mapping[str, str]) -> Iterator[Path]:
    """Return the lock files below TORCH_EXTENSIONS_DIR, or in the user's cache below a folder for
    each Python and device."""
    if named := env.get("TORCH_EXTENSIONS_DIR"):
        return Path(named).glob("*/lock")
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (cache / "torch_extensions").glob("*/*/lock")


def _is_held(lock: os.stat_result) -> bool:
    """Return True if a visible process has this file open, or if no process is visible."""
    seen = False
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        seen = True
        try:
            status = descriptor.stat()
        except OSError:  # another user's, or closed
            continue
        if (status.st_dev, status.st_ino) == (lock.st_dev, lock.st_ino):
            return True
    return not seen


TAIL_LINES = 200
"""Number of last lines of a worker that are searched for its failure."""
MULTINODE, STANDARD = "deepspeed_multinode_launcher", "standard"
"""How DeepSpeed is started on several machines: by torch's own launcher on each."""
GUARDED = "CONVBENCH_GUARDED"
"""Environment variable, set for workers that must not outlive their parent."""
ERROR_PREFIX = "convbench: error: "
"""Prefix of the error line with which a trainer script ends."""
_RAISED = re.compile(r"^(?:\[rank\d+\]:\s*)?(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.+)")
_MEMORY = re.compile(r"out of memory|can't allocate memory|OutOfMemoryError", re.IGNORECASE)


def trainer_folder() -> Path:
    """Return the folder of trainer scripts, in the wheel or the checkout."""
    package = Path(str(resources.files("convbench")))
    inside = package / "trainers"
    return inside if inside.is_dir() else package.parent / "trainers"


def locate_trainer(trainer: str) -> Path:
    """Return the absolute path of a trainer script, named by a shipped script's stem or by a path
    that ends in `.py`.

    Raise SpecError if there is no such file.
    """
    path = Path(trainer) if trainer.endswith(".py") else trainer_folder() / f"{trainer}.py"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in trainer_folder().glob("*.py")))
        raise SpecError(f"trainer {trainer!r}: found no such script; expected one of {known}")
    return path.resolve()


def load_trainer(path: Path) -> ModuleType:
    """Run a trainer script and return it as a module. Raise SpecError if it lacks `data` or `fit`.

    Errors of the script itself pass unchanged.
    """
    spec = importlib.util.spec_from_file_location(f"convbench_trainer_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("data", "fit"):
        if not callable(getattr(module, name, None)):
            raise SpecError(
                f"{path}: found no function {name!r}; expected data(job) and fit(job, learnt)"
            )
    return module


def trainer_devices(calls: CallOptions) -> tuple[str, ...] | None:
    """Return the names of the devices for training, as CUDA_VISIBLE_DEVICES takes them; None if the
    options name none, which means all."""
    placement = placement_of(parse_devices(calls.devices), "trainer")
    return None if placement is None else placement.names


def count_accelerators(calls: CallOptions) -> int:
    """Return the number of accelerators that training may use, without importing torch."""
    names = trainer_devices(calls)
    return len(list_devices() if names is None else names)


def check_launch(launch: LaunchSpec, fit: Fit) -> None:
    """Raise SpecError for a DeepSpeed launcher that needs a file of hosts and logins between them,
    and for an offloaded optimiser that is not AdamW: accelerate would silently replace it by
    DeepSpeed's Adam."""
    settings = launch.accelerate or {}
    deepspeed = settings.get("deepspeed_config") or {}
    multinode = deepspeed.get(MULTINODE)
    if multinode not in (None, STANDARD):
        raise SpecError(
            f"launch {launch.name!r}: found {MULTINODE} {multinode!r}, which needs a file of hosts "
            f"and logins between them; expected {STANDARD}: each machine gives the same command"
        )
    offloaded = deepspeed.get("offload_optimizer_device") not in (None, "none")
    if offloaded and not fit.optimizer.startswith("adamw"):
        raise SpecError(
            f"launch {launch.name!r} offloads the optimiser, which takes AdamW only; found "
            f"fit.optimizer {fit.optimizer!r}; set fit.optimizer=adamw_torch or "
            "launch.deepspeed_config.offload_optimizer_device=none"
        )


def check_installed(launch: LaunchSpec, recipe: Recipe) -> None:
    """Raise MissingDependency if a package that the training needs is missing; import none."""
    needed = ["torch", "transformers", "accelerate", "trl"]
    if recipe.lora is not None:
        needed.append("peft")
    if (launch.accelerate or {}).get("deepspeed_config"):
        needed.append("deepspeed")
    for name in needed:
        if importlib.util.find_spec(name) is None:
            raise MissingDependency(name, needed_for="training", install=with_extra("train"))
    quantized = recipe.lora is not None and recipe.lora.quantize == "4bit"
    if quantized and importlib.util.find_spec("bitsandbytes") is None:
        raise MissingDependency("bitsandbytes", needed_for="QLoRA", install=with_extra("qlora"))


def accelerate_config(launch: LaunchSpec, fit: Fit, bf16: bool) -> dict[str, Any]:
    """Return the configuration for `accelerate launch`: that of the launch spec, without its null
    values.

    `mixed_precision` is `bf16` or `no`. With DeepSpeed the recipe's accumulation is filled in,
    clipping is `auto`, and on several machines the `standard` launcher is set. The launch spec must
    have an accelerate section (else AssertionError); it is not changed.
    """
    assert launch.accelerate is not None
    config = {name: value for name, value in launch.accelerate.items() if value is not None}
    config["mixed_precision"] = "bf16" if bf16 else "no"
    if "deepspeed_config" in config:
        config["deepspeed_config"] = {
            **config["deepspeed_config"],
            "gradient_accumulation_steps": fit.accumulation,
            "gradient_clipping": "auto",  # the trainer fills it in; a 0 here would become 1.0
        }
        if int(config.get("num_machines") or 1) > 1:  # else accelerate starts pdsh, with no hosts
            config["deepspeed_config"][MULTINODE] = STANDARD
    return config


def rank_of(launch: LaunchSpec) -> int:
    """Return the rank of this machine in a launch, from 0; 0 for a launch on one machine."""
    return int((launch.accelerate or {}).get("machine_rank") or 0)


def launch_command(
    launch: LaunchSpec, script: Path, recipe: Path, fit: Fit, gpus: int, port: int | None = None
) -> list[str]:
    """Return the command that starts a trainer script.

    It is Python alone, or `accelerate launch` if `launch.accelerate` is set; its configuration is
    then written next to the recipe, to `accelerate.yaml`, or `accelerate-RANK.yaml` on a later
    machine. With `gpus` above 0 precision `auto` is bf16. `port` is used on one machine, unless
    `launch` names one: two concurrent trainings need two.
    """
    tail = [str(script), "--recipe", str(recipe)]
    if launch.accelerate is None:
        return [sys.executable, *tail]
    bf16 = fit.precision == "bf16" or (fit.precision == "auto" and gpus > 0)
    rank = rank_of(launch)
    file = recipe.with_name(f"accelerate-{rank}.yaml" if rank else "accelerate.yaml")
    settings = accelerate_config(launch, fit, bf16)
    if port is not None and int(settings.get("num_machines") or 1) == 1:
        settings.setdefault("main_process_port", port)
    write_atomic(file, yaml.safe_dump(settings).encode())
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file), *tail]


def worker_environment(
    launch: LaunchSpec, gpus: int, names: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the worker's whole environment: a copy of `os.environ` with additions.

    convbench is importable (PYTHONPATH), `quiet_environment` is added, and the worker is marked to
    end with its parent. `names` are the visible devices (None: as they are); a launch of a single
    process sees only the first of several.
    """
    env = dict(os.environ)
    parent = str(Path(str(resources.files("convbench"))).parent)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [parent, env.get("PYTHONPATH")]))
    env.update(quiet_environment(gpus))
    env[GUARDED] = "1"
    if names is not None:
        env[VISIBLE] = ",".join(names)
    if launch.accelerate is None and gpus > 1:
        env[VISIBLE] = env.get(VISIBLE, "0").split(",")[0]
    return env


def quiet_environment(gpus: int) -> dict[str, str]:
    """Return environment variables for a trainer's process; `os.environ` is not changed.

    Its output is unbuffered and tokenizers start no threads. Without GPUs `DS_ACCELERATOR` is `cpu`
    unless it is set already, so that DeepSpeed writes nothing to stdout.
    """
    settings = {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
    if gpus == 0 and "DS_ACCELERATOR" not in os.environ:
        settings["DS_ACCELERATOR"] = "cpu"
    return settings


def run_command(
    parts: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    fit: Fit,
    locks: Sequence[int] = (),
) -> None:
    """Run a command; write its output, stderr included, to stderr and append it to `log`.

    Raise TrainError, with the reason found in the last lines, if it ends with another code than 0.
    However this process ends (Ctrl-C, SIGTERM, SIGKILL), every process of the command ends too. The
    workers inherit `locks`, descriptors of this process, and hold them until then.
    """
    last: deque[str] = deque(maxlen=TAIL_LINES)
    with (
        open_to_append(log) as file,
        subprocess.Popen(  # noqa: S603 - our own interpreter and script
            guard_command(list(parts)),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=locks,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with stop_on_interrupt(process.stdin.close):
                for line in process.stdout:
                    last.append(line.rstrip())
                    file.write(line.encode())
                    sys.stderr.write(line)
        finally:
            process.stdin.close()
            process.wait()
    if process.returncode != 0:
        raise TrainError(f"{failure_reason(last, process.returncode, fit)} (full output: {log})")


def failure_reason(lines: Iterable[str], code: int, fit: Fit) -> str:
    """Return a line that says why a worker failed, from its last lines and exit code.

    It is, in this order: the text after `convbench: error: ` of the first line that has it; advice
    if a line says that memory ran out, or if the code is that of SIGKILL; the first exception of a
    line that begins with one (ChildFailedError aside); the exit code with the last three lines.
    """
    lines = [line for line in lines if line.strip()]
    for line in lines:
        if ERROR_PREFIX in line:
            return line.split(ERROR_PREFIX, 1)[1]
    if any(memory_ran_out(line) for line in lines):
        return out_of_memory(fit)
    if code in (-9, 137):
        return f"the worker was killed, most likely by the system: {out_of_memory(fit)}"
    raised = [match for match in map(_RAISED.match, lines) if match]
    relevant = [match for match in raised if match[1] != "ChildFailedError"]
    if relevant:
        return f"the worker failed: {relevant[0][1]}: {relevant[0][2]}"
    return f"the worker failed with exit code {code}: {' / '.join(lines[-3:])}"


def memory_ran_out(text: str) -> bool:
    """Return True if an error's text says that memory ran out."""
    return _MEMORY.search(text) is not None


def out_of_memory(fit: Fit) -> str:
    """Return a line on `fit.batch_size` and what to try after memory ran out.

    It names half the batch size with the accumulation that keeps the step, checkpointing, shorter
    rows, a smaller adapter and `zero3`.
    """
    smaller = max(1, fit.batch_size // 2)
    accumulation = fit.accumulation * (fit.batch_size // smaller)
    return (
        f"out of memory with fit.batch_size {fit.batch_size}; try --set fit.batch_size={smaller} "
        f"--set fit.accumulation={accumulation} (the same step), --set "
        "fit.gradient_checkpointing=true, "
        "--set data.max_length=2048, --set lora.r=8, or --launch zero3"
    )
