"""Start one training on several machines: `train … --nodes N --on slurm|ray`. Each machine runs the
typed command without `--on`; the scheduler gives the ranks and the address of the first."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convbench.errors import TrainError, UsageError
from convbench.learn.launch import MASTER, RANK
from convbench.options.declare import as_words
from convbench.options.spread import ShardOptions
from convbench.options.train import TrainOptions
from convbench.shards.launchers import LaunchTarget, connect_ray, parse_target, ray_task
from convbench.shards.scripts import fill_template, job_name, submit_slurm
from convbench.store import Run

MAX_RESTARTS = 5
"""Most restarts of a training after losses of machines."""
POLL_S = 0.5
SCRIPT = """#!/bin/bash
#SBATCH --job-name=convbench-{{ name }}
#SBATCH --nodes={{ workers }}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output={{ logs }}/slurm-%j.log
# One task a machine; each starts the launch's processes on it. For accelerators add, say,
#SBATCH --gpus-per-node=8, and --set launch.num_processes=8. A lost machine ends the job, which
# is queued again and goes on from the last step that was kept.
set -eu
cd {{ folder }}
export PYTHONPATH={{ paths }}
exec srun --kill-on-bad-exit=1 --output={{ logs }}/rank-%t.log --open-mode=append {{ command }}
"""


@dataclasses.dataclass(frozen=True)
class MachineJob:
    """The command for each machine, and where its logs go."""

    folder: Path
    words: tuple[str, ...]
    """Arguments after `convbench train`."""
    machines: int
    target: LaunchTarget

    @property
    def log_folder(self) -> Path:
        """The folder for the machines' output."""
        return self.folder / "logs"


def machine_job(options: TrainOptions, runs: Sequence[Run], folder: Path) -> MachineJob:
    """Return the job for each machine: this command, with runs and folder as absolute paths. Raises
    UsageError for a target that is not Slurm or Ray, or without `--nodes`."""
    target = parse_target(options.spread.on or "")
    if target.name not in ("slurm", "ray") or target.count is not None:
        raise UsageError(
            f"--on {options.spread.on}: expected slurm, ray or ray:ADDRESS, and --nodes N"
        )
    if options.nodes is None:
        raise UsageError(f"--on {options.spread.on}: found no --nodes; expected how many machines")
    own = dataclasses.replace(
        options,
        spread=ShardOptions(),
        dry_run=False,
        out=folder.resolve(),
        run=tuple(run.path.resolve() for run in runs),
    )
    return MachineJob(folder.resolve(), tuple(as_words(own)), options.nodes, target)


def launch_text(options: TrainOptions, runs: Sequence[Run], folder: Path) -> str:
    """Return what `--dry-run` shows: Slurm's script, or for Ray a comment and the command of each
    task.

    Raise UsageError as `machine_job` does.
    """
    job = machine_job(options, runs, folder)
    if job.target.name == "ray":
        where = job.target.address or "the cluster of RAY_ADDRESS"
        line = shlex.join(["convbench", "train", *job.words])
        return f"# {job.machines} tasks on {where}, each on a machine of its own\n{line}\n"
    command = [sys.executable, "-m", "convbench", "train", *job.words]
    values: dict[str, str | int] = {
        "name": job_name(folder),
        "workers": job.machines,
        "command": shlex.join(command),
        "run": shlex.quote(str(folder)),
        "folder": shlex.quote(os.getcwd()),
        "logs": str(job.log_folder),
        "paths": shlex.quote(os.environ.get("PYTHONPATH", "")),
    }
    return fill_template(SCRIPT, options.spread.template, values)


def train_on_machines(options: TrainOptions, runs: Sequence[Run], folder: Path) -> list[str]:
    """Train on several machines, wait for the end, and return notes.

    On Slurm the script is written to `train.sbatch` in the folder and submitted; the end of the job
    is awaited, whatever its outcome. On Ctrl-C it goes on, a note on stderr says how to end it, and
    KeyboardInterrupt is raised. On Ray,
    raise TrainError if a task fails, or if machines are lost more than five times. Raise
    MissingDependency or RunError if the job cannot be submitted.
    """
    job = machine_job(options, runs, folder)
    if job.target.name == "ray":
        return _train_on_ray(job)
    slurm = submit_slurm(
        job.folder / "train.sbatch", launch_text(options, runs, folder), job.log_folder, 1
    )
    try:
        while slurm.poll_shards():
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        print(f"note: {slurm.stop()}", file=sys.stderr)
        raise
    return slurm.notes


def address_here() -> str:
    """Return `HOST:PORT` of this machine, with a free port."""
    import ray

    from convbench.models.vllm import free_port

    return f"{ray.util.get_node_ip_address()}:{free_port()}"


def _train_on_ray(job: MachineJob) -> list[str]:
    """Train as tasks of a Ray cluster, one a machine, and return notes. After the loss of a machine
    all tasks are ended and restarted from the last saved step. Raises TrainError."""
    ray = connect_ray(job.target.address)
    logs = job.log_folder
    logs.mkdir(parents=True, exist_ok=True)
    losses = 0
    try:
        while True:
            codes = _attempt_training(ray, job)
            if codes is not None and not any(codes):
                break
            if codes is not None:
                raise TrainError(f"machines ended with codes {codes}; see {logs}")
            losses += 1
            if losses > MAX_RESTARTS:
                raise TrainError(f"a machine was lost {losses} times; see {logs}")
    finally:
        ray.shutdown()
    restarts = f", restarted {losses} times after losing a machine" if losses else ""
    return [f"trained on {job.machines} machines{restarts}; their output is in {logs}"]


def _attempt_training(ray: Any, job: MachineJob) -> list[int] | None:
    """Train once; return the exit codes, or None if a machine was lost."""
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"CPU": 1}] * job.machines, strategy="STRICT_SPREAD")
    try:
        ray.get(group.ready(), timeout=600)

        def placement_on(rank: int) -> dict[str, Any]:
            strategy = PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=rank
            )
            return {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": strategy}

        master = ray.get(ray.remote(address_here).options(**placement_on(0)).remote())
        paths = tuple(path for path in sys.path if path)
        task = ray.remote(ray_task)
        pending = [
            task.options(**placement_on(rank)).remote(
                ("train", *job.words),
                os.getcwd(),
                paths,
                str(job.log_folder / f"rank-{rank}.log"),
                {RANK: str(rank), MASTER: master},
            )
            for rank in range(job.machines)
        ]
        codes: list[int] = []
        while pending:
            ended, pending = ray.wait(pending, num_returns=1)
            codes += ray.get(ended)
            if codes[-1]:
                return codes
        return codes
    except ray.exceptions.RayError:
        return None
    finally:
        remove_placement_group(group)  # ends what still runs
