"""Workers as tasks of Slurm jobs: an array of one worker each, so that each begins as soon as there
is room for one. The script is written beside the run; `--dry-run` shows it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from convbench.errors import MissingDependency, RunError
from convbench.store.jsonl import write_whole
from convbench.workers.on import Crew, Place
from convbench.workers.on.filled import filled

USUAL = 4
LOOK_S = 10.0
"""Seconds between two questions to the scheduler."""
LOOK = "CONVBENCH_SLURM_LOOK_S"
"""Environment variable for another number of them."""
LONG_S = 60.0
SCRIPT = """#!/bin/bash
#SBATCH --job-name=convbench-{{ name }}
#SBATCH --array=0-{{ last }}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
#SBATCH --output={{ logs }}/slurm-%A_%a.log
# One worker a task. It is told to end a minute before its time, gives its shard back, and the
# array may be submitted again. For a worker that serves its model: #SBATCH --gpus-per-task=1
set -eu
cd {{ folder }}
export PYTHONPATH={{ paths }}
srun --ntasks=1 {{ command }} &
child=$!
trap 'kill -TERM "$child"' TERM INT
code=0
wait "$child" || code=$?
wait "$child" || code=$?   # a wait that a signal ended, once more
exit "$code"
"""


def usual(place: Place) -> int:
    """Return the tasks where nobody says."""
    return USUAL


def written(crew: Crew) -> str:
    """Return the script."""
    return filled(SCRIPT, crew, facts(crew))


def facts(crew: Crew) -> dict[str, str | int]:
    """Return what a template may name, quoted for a shell."""
    command = shlex.join([sys.executable, "-m", "convbench", "work", *crew.words])
    paths = os.environ.get("PYTHONPATH", "")
    return {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", crew.run.name)[:60] or "run",
        "last": crew.count - 1, "workers": crew.count, "command": command,
        "run": shlex.quote(str(crew.run)), "folder": shlex.quote(os.getcwd()),
        "logs": str(crew.logs()), "paths": shlex.quote(paths),
    }  # fmt: skip


class Submitted:
    """A job that the scheduler has."""

    def __init__(self, job: str, script: Path, logs: Path, count: int) -> None:
        self.job = job
        self.told: Sequence[str] = (f"job {job}; its script is {script}, what it prints in {logs}",)
        self._looked, self._there = 0.0, count
        self._every = float(os.environ.get(LOOK) or LOOK_S)

    def alive(self) -> int:
        """Return how many tasks run or wait; the scheduler is asked now and then."""
        if time.monotonic() - self._looked > self._every:
            self._looked = time.monotonic()
            with suppress(RunError):  # a scheduler that does not answer has not lost the job
                listing = _asked(["squeue", "--noheader", "--array", "--jobs", self.job])
                self._there = len(listing.split("\n")) - 1
        return self._there

    def stop(self) -> list[str]:
        """Let the job go on: it is the scheduler's."""
        return [f"job {self.job} goes on; scancel {self.job} ends it"]

    def close(self) -> None:
        """Nothing is held."""


def _asked(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - programs of the scheduler, on the user's path
            command, capture_output=True, text=True, timeout=LONG_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        gone = command[0] == "squeue" and "Invalid job id" in done.stderr
        if gone:
            return ""
        raise RunError(f"{command[0]}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def submit(script: Path, text: str, logs: Path, count: int) -> Submitted:
    """Write a script and submit it. Raises MissingDependency where there is no scheduler."""
    for program in ("sbatch", "squeue"):
        if shutil.which(program) is None:
            raise MissingDependency(
                program, needed_for="--on slurm",
                install="give the command on a node that submits jobs, or add --dry-run for the "
                "script",
            )  # fmt: skip
    logs.mkdir(parents=True, exist_ok=True)
    write_whole(script, text.encode())
    said = _asked(["sbatch", "--parsable", str(script)])
    found = re.match(r"\d+", said.strip())
    if found is None:
        raise RunError(f"sbatch: found {said.strip()!r:.200}; expected the number of a job")
    return Submitted(found[0], script, logs, count)


def start(crew: Crew) -> Submitted:
    """Submit the array."""
    script = crew.run / "shards" / "workers.sbatch"
    return submit(script, written(crew), crew.logs(), crew.count)
