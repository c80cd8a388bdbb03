"""Start one training on several machines: `train … --nodes N --on slurm|ray`. Each machine gives
the command that was typed, without `--on`; who is first and where all meet the scheduler says."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convbench.errors import TrainError, UsageError
from convbench.learn.nodes import MASTER, RANK
from convbench.options.declare import as_words
from convbench.options.spread import Spread
from convbench.options.train import TrainOptions
from convbench.regular import open_to_append
from convbench.store import Run
from convbench.workers.on import Crew, Place, place_of
from convbench.workers.on.filled import filled

AGAIN = 5
"""Times that a training is started again after a machine was lost."""
LOOK_S = 0.5
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


def crew_of(options: TrainOptions, runs: Sequence[Run], folder: Path, place: Place) -> Crew:
    """Return what is started on each machine: this command, its runs and its folder named."""
    if options.nodes is None:
        raise UsageError(f"--on {options.spread.on}: found no --nodes; expected how many machines")
    own = dataclasses.replace(
        options, spread=Spread(), dry_run=False, out=folder.resolve(),
        run=tuple(run.path.resolve() for run in runs),
    )  # fmt: skip
    return Crew(
        run=folder.resolve(), words=tuple(as_words(own)), count=options.nodes,
        address=place.address, template=options.spread.template,
    )  # fmt: skip


def written(options: TrainOptions, runs: Sequence[Run], folder: Path) -> str:
    """Return what `--dry-run` shows: the script, or the tasks."""
    place = _place(options)
    crew = crew_of(options, runs, folder, place)
    if place.name == "ray":
        where = crew.address or "the cluster of RAY_ADDRESS"
        line = shlex.join(["convbench", "train", *crew.words])
        return f"# {crew.count} tasks on {where}, each on a machine of its own\n{line}\n"
    command = [sys.executable, "-m", "convbench", "train", *crew.words]
    facts: dict[str, str | int] = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", folder.name)[:60] or "train",
        "workers": crew.count, "command": shlex.join(command), "run": shlex.quote(str(folder)),
        "folder": shlex.quote(os.getcwd()), "logs": str(folder.resolve() / "logs"),
        "paths": shlex.quote(os.environ.get("PYTHONPATH", "")),
    }  # fmt: skip
    return filled(SCRIPT, crew, facts)


def train_together(options: TrainOptions, runs: Sequence[Run], folder: Path) -> list[str]:
    """Train on several machines and wait for the end; return what to know. TrainError where it
    fails."""
    place = _place(options)
    if place.name == "ray":
        return _on_ray(crew_of(options, runs, folder, place))
    from convbench.workers.on.slurm import submit

    logs = folder.resolve() / "logs"
    job = submit(folder.resolve() / "train.sbatch", written(options, runs, folder), logs, 1)
    try:
        while job.alive():
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        return [*job.told, *job.stop()]
    return list(job.told)


def _place(options: TrainOptions) -> Place:
    place = place_of(options.spread.on or "")
    if place.name not in ("slurm", "ray") or place.count is not None:
        raise UsageError(
            f"--on {options.spread.on}: expected slurm, ray or ray:ADDRESS, and --nodes N"
        )
    return place


def node_task(
    words: tuple[str, ...], folder: str, paths: tuple[str, ...], rank: int, master: str, log: str
) -> int:
    """Train on one machine, in a process that ends with the task; return the exit code."""
    import subprocess

    from convbench.guard import guarded

    os.chdir(folder)
    space = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), RANK: str(rank), MASTER: master}
    command = [sys.executable, "-m", "convbench", "train", *words]
    with (
        open_to_append(Path(log)) as file,
        subprocess.Popen(  # noqa: S603 - our own command
            guarded(command), stdin=subprocess.PIPE, env=space, stdout=file, stderr=file
        ) as process,
    ):
        return process.wait()


def address_here() -> str:
    """Return `HOST:PORT` of this machine, with a port that is free now."""
    import ray

    from convbench.models.vllm import free_port

    return f"{ray.util.get_node_ip_address()}:{free_port()}"


def _on_ray(crew: Crew) -> list[str]:
    """Train as tasks of a cluster, one a machine. Where one is lost, all are ended and begin again
    from the last step that was kept."""
    from convbench.workers.on.ray import connected

    ray = connected(crew.address)
    logs = crew.run / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    lost = 0
    try:
        while True:
            codes = _attempt(ray, crew, logs)
            if codes is not None and not any(codes):
                break
            if codes is not None:
                raise TrainError(f"machines ended with codes {codes}; see {logs}")
            lost += 1
            if lost > AGAIN:
                raise TrainError(f"{lost} times a machine was lost; see {logs}")
    finally:
        ray.shutdown()
    many = f", begun again {lost} times after a machine was lost" if lost else ""
    return [f"trained on {crew.count} machines{many}; what each printed lies in {logs}"]


def _attempt(ray: Any, crew: Crew, logs: Path) -> list[int] | None:
    """Train once; return the exit codes, or None where a machine was lost."""
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"CPU": 1}] * crew.count, strategy="STRICT_SPREAD")
    try:
        ray.get(group.ready(), timeout=600)

        def on(rank: int) -> dict[str, Any]:
            strategy = PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=rank
            )
            return {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": strategy}

        master = ray.get(ray.remote(address_here).options(**on(0)).remote())
        paths = tuple(path for path in sys.path if path)
        task = ray.remote(node_task)
        left = [
            task.options(**on(rank)).remote(
                crew.words, os.getcwd(), paths, rank, master, str(logs / f"rank-{rank}.log")
            )
            for rank in range(crew.count)
        ]
        codes: list[int] = []
        while left:
            ended, left = ray.wait(left, num_returns=1)
            codes += ray.get(ended)
            if codes[-1]:
                return codes
        return codes
    except ray.exceptions.RayError:
        return None
    finally:
        remove_placement_group(group)  # ends what still runs
