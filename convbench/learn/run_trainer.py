"""Run the trainer of a job, in this process or in launched ones."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import yaml

from convbench.errors import TrainError
from convbench.learn import launch as launching
from convbench.learn.job import Job, TrainContext
from convbench.learn.pairs import Pairs
from convbench.learn.stored_rows import ROWS
from convbench.learn.weights import Weighted
from convbench.models.parameters import to_stderr
from convbench.models.vllm import free_port
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import RECIPE, Checkpoint
from convbench.store.jsonl import write_atomic
from convbench.store.scratch import make_workspace

WAIT_S = 600.0
"""Seconds that another machine waits for the first one to write the checkpoint."""


def run_trainer(job: Job, context: TrainContext, data: Any = None) -> None:
    """Write the job's recipe and run its trainer; a trainer in this process takes the training data
    if they are given. Among launched processes of this package's trainers the first makes the rows
    for all. Raises TrainError if the training fails."""
    rank = launching.rank_of(context.launch)
    file = write_recipe(job, rank)
    script = launching.locate_trainer(job.recipe.trainer or "")
    gpus, names = (
        launching.count_accelerators(context.calls),
        launching.trainer_devices(context.calls),
    )
    if context.in_process and context.launch.accelerate is None and names is None and not gpus:
        os.environ.update(launching.quiet_environment(gpus))
        module, resolved_job = launching.load_trainer(script), Job.from_file(file)
        module.fit(resolved_job, resolved_job.training_data(module) if data is None else data)
    else:
        port = None if names is None else free_port()
        parts = launching.launch_command(context.launch, script, file, job.recipe.fit, gpus, port)
        env = launching.worker_environment(context.launch, gpus, names)
        log = file.with_name(f"train-{rank}.log" if rank else "train.log")
        if (context.launch.accelerate or {}).get("deepspeed_config"):
            launching.remove_stale_locks(to_stderr, env)
        with make_workspace(job.folder, ".rows-") as rows:
            if (
                isinstance(data, Weighted | Pairs)
                and script.parent == launching.trainer_folder().resolve()
            ):
                env[ROWS] = str(rows.resolve())
            launching.run_command(parts, env, log, job.recipe.fit, context.locks)
    if rank:
        _wait_for_first(job)
    if not Checkpoint(job.folder).is_finished:
        raise TrainError(
            f"{job.folder}: the trainer ended without a checkpoint; see train.log there"
        )


def _wait_for_first(job: Job) -> None:
    """Wait until the first machine has written the checkpoint into the shared folder."""
    ends = time.monotonic() + WAIT_S
    while not Checkpoint(job.folder).is_finished and time.monotonic() < ends:
        time.sleep(0.2)


def write_recipe(job: Job, rank: int = 0) -> Path:
    """Write the resolved recipe into the checkpoint's folder and return the file; machines that
    share the folder write a file each, by rank."""
    job.folder.mkdir(parents=True, exist_ok=True)
    file = job.folder / RECIPE
    file = file.with_name(f"{file.stem}-{rank}{file.suffix}") if rank else file
    values = yaml.safe_dump(portable_recipe(job).model_dump(mode="json"), sort_keys=False)
    write_atomic(file, f"# The resolved recipe of this checkpoint.\n{values}".encode())
    return file


def portable_recipe(job: Job) -> Recipe:
    """Return the resolved recipe, with a relative path to its first run if that contains the job's
    folder."""
    run, folder = job.run.path.resolve(), job.folder.resolve()
    where = os.path.relpath(run, folder) if folder.is_relative_to(run) else job.recipe.run
    return job.recipe.model_copy(update={"run": where})
