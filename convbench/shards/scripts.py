"""Launchers that write a script or a manifest: an array of Slurm, a Job of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from convbench import __version__
from convbench.errors import MissingDependency, RunError, SpecError
from convbench.shards.job import ShardJob, StartedShards
from convbench.store.jsonl import write_atomic
from convbench.store.shape import read_bytes

SLURM_LOOK = "CONVBENCH_SLURM_LOOK_S"
"""Environment variable: seconds between two calls of squeue."""
SLURM_LOOK_S = 10.0
SLURM_ANSWER_S = 60.0


def fill_template(own: str, template: Path | None, values: Mapping[str, str | int]) -> str:
    """Return the text of `own`, or of the user's file, with its placeholders (`{{ command }}`, …)
    filled in.

    Only names in double braces are placeholders, and the keys of `values` are known. Raises
    SpecError for an unknown one, or if the user's file names neither `command` nor `words`;
    RunError if it cannot be read.
    """
    text, where = own, "its own template"
    if template is not None:
        text, where = read_bytes(template).decode("utf-8", "replace"), str(template)
    before, _, rest = text.partition("{{")
    parts = [before]
    while rest:
        name, closed, after = rest.partition("}}")
        name = name.strip()
        if not closed or name not in values:
            raise SpecError(
                f"--template {where}: found {{{{ {name[:40]} }}}}; expected one of "
                f"{', '.join(sorted(values))}"
            )
        parts.append(str(values[name]))
        before, _, rest = after.partition("{{")
        parts.append(before)
    needed = {"command", "words"} & values.keys()
    if template is not None and not any(f"{{{{ {name} }}}}" in text for name in needed):
        raise SpecError(
            f"--template {where}: names no {{{{ {' or '.join(needed)} }}}}, so that it would "
            "start nothing"
        )
    return "".join(parts)


def job_name(folder: Path) -> str:
    """Return a folder's name as a job name: other characters than letters, digits, `.`, `_` and `-`
    become `-`.

    It is cut to 60 characters, and `run` if empty.
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", folder.name)[:60] or "run"


class SlurmLauncher:
    """Submits a Slurm array. The script is written into the run's folder of shards."""

    SCRIPT = """#!/bin/bash
#SBATCH --job-name=convbench-{{ name }}
#SBATCH --array={{ tasks }}%{{ workers }}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
#SBATCH --output={{ logs }}/slurm-%A_%a.log
# One shard a task. It is told to end a minute before its time; the array may be submitted again.
# For a shard that serves its model: #SBATCH --gpus-per-task=1
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

    def default_count(self, address: str | None) -> int:
        """Return the default number of tasks at once, always 4."""
        return 4

    def render_script(self, job: ShardJob) -> str:
        """Return the script of the array, with values quoted for a shell.

        Raises SpecError for an invalid template.
        """
        words = shlex.join([sys.executable, "-m", "convbench", *job.words])
        values: dict[str, str | int] = {
            "name": job_name(job.run),
            "tasks": array_ranges(job.indices),
            "last": job.count - 1,
            "workers": job.at_once,
            "command": f'{words} --shard="$SLURM_ARRAY_TASK_ID"/{job.count}',
            "run": shlex.quote(str(job.run)),
            "folder": shlex.quote(os.getcwd()),
            "logs": str(job.logs_folder),
            "paths": shlex.quote(os.environ.get("PYTHONPATH", "")),
        }
        return fill_template(self.SCRIPT, job.template, values)

    def start_shards(self, job: ShardJob) -> SlurmJob:
        """Write `shards/shards.sbatch` into the run, submit it as one array, and return the job.

        Raises MissingDependency without Slurm, RunError if it is refused, SpecError for an invalid
        template.
        """
        script = job.run / "shards" / "shards.sbatch"
        return submit_slurm(script, self.render_script(job), job.logs_folder, len(job.indices))


def array_ranges(indices: Sequence[int]) -> str:
    """Return indexes as ranges in ascending order: `0-3,7` for 0, 1, 2, 3, 7.

    Raises IndexError for none.
    """
    ordered = sorted(indices)
    starts = [ordered[0], *(b for a, b in pairwise(ordered) if b != a + 1)]
    ends = [*(a for a, b in pairwise(ordered) if b != a + 1), ordered[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


class SlurmJob:
    """Handle of a submitted Slurm job."""

    def __init__(self, number: str, script: Path, logs: Path, count: int) -> None:
        self.number = number
        self.notes = [f"job {number}; its script is {script}, what it prints in {logs}"]
        self._looked, self._count = 0.0, count
        self._every = float(os.environ.get(SLURM_LOOK) or SLURM_LOOK_S)

    def poll_shards(self) -> int:
        """Return how many tasks run or wait.

        Slurm is asked every ten seconds at most, else the last number is returned.

        If it does not answer, the last number stays.
        """
        if time.monotonic() - self._looked > self._every:
            self._looked = time.monotonic()
            with suppress(RunError):  # if Slurm does not answer, the job may still run
                listing = _run_slurm(["squeue", "--noheader", "--array", "--jobs", self.number])
                self._count = len(listing.split("\n")) - 1
        return self._count

    def stop(self) -> str | None:
        """Leave the job running, and return how to end it."""
        return f"job {self.number} goes on; scancel {self.number} ends it"

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _run_slurm(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - programs of Slurm, on the user's path
            command,
            capture_output=True,
            text=True,
            timeout=SLURM_ANSWER_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        if command[0] == "squeue" and "Invalid job id" in done.stderr:
            return ""
        raise RunError(f"{command[0]}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def submit_slurm(script: Path, text: str, logs: Path, count: int) -> SlurmJob:
    """Write a script, submit it and return the job; the folder of logs is made.

    `count` is the number of its tasks until Slurm is asked. Raises MissingDependency without sbatch
    or squeue, RunError if it is refused.
    """
    for program in ("sbatch", "squeue"):
        if shutil.which(program) is None:
            raise MissingDependency(
                program,
                needed_for="--on slurm",
                install="give the command on a node that submits jobs, or add --dry-run for the "
                "script",
            )
    logs.mkdir(parents=True, exist_ok=True)
    write_atomic(script, text.encode())
    answer = _run_slurm(["sbatch", "--parsable", str(script)])
    number = re.match(r"\d+", answer.strip())
    if number is None:
        raise RunError(f"sbatch: found {answer.strip()!r:.200}; expected the number of a job")
    return SlurmJob(number[0], script, logs, count)


class KubernetesLauncher:
    """Writes the manifest of a Job with indexed completion, for `kubectl apply`."""

    MANIFEST = """# kubectl apply -f FILE. To be filled in: the image, with convbench installed; the
# claim of a volume that many nodes may write to, which holds the run; a secret with the keys.
apiVersion: batch/v1
kind: Job
metadata:
  name: convbench-{{ name }}
spec:
  completionMode: Indexed
  completions: {{ count }}
  parallelism: {{ workers }}
  backoffLimitPerIndex: 100            # pods of an index that may be lost
  podReplacementPolicy: Failed
  podFailurePolicy:
    rules:
      - action: FailIndex              # convbench said why; another try would say it again
        onExitCodes: {containerName: shard, operator: In, values: [1, 2]}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 60
      containers:
        - name: shard
          image: REGISTRY/convbench:{{ version }}
          workingDir: /work
          command: ["convbench"]
          args: {{ words }}
          envFrom:
            - secretRef: {name: convbench-keys, optional: true}
          resources:
            requests: {cpu: "1", memory: 2Gi}
            limits: {memory: 4Gi}      # a shard that serves its model: nvidia.com/gpu: 1
          volumeMounts:
            - {name: runs, mountPath: /work}
      volumes:
        - name: runs
          persistentVolumeClaim: {claimName: convbench-runs}
"""

    def default_count(self, address: str | None) -> int:
        """Return the default number of pods at once, always 4."""
        return 4

    def render_script(self, job: ShardJob) -> str:
        """Return the manifest of the Job, with the run expected in the volume as `/work/NAME`.

        Raises SpecError for an invalid template.
        """
        inside = f"/work/{job.run.name}"
        inner = tuple(word.replace(str(job.run), inside).replace("$", "$$") for word in job.words)
        words = replace(job, words=inner).shard_command("$(JOB_COMPLETION_INDEX)")
        name = re.sub(r"[^a-z0-9-]+", "-", job.run.name.lower()).strip("-")[:50] or "run"
        values: dict[str, str | int] = {
            "name": name,
            "count": job.count,
            "workers": job.at_once,
            "version": __version__,
            "words": json.dumps(words),
            "run": json.dumps(inside),
        }
        return fill_template(self.MANIFEST, job.template, values)

    def start_shards(self, job: ShardJob) -> StartedShards:
        """Write `shards/job.yaml` into the run and raise RunError: the user starts pods with
        kubectl.

        Nothing is returned.
        """
        manifest = job.run / "shards" / "job.yaml"
        write_atomic(manifest, self.render_script(job).encode())
        raise RunError(
            f"--on k8s starts nothing; the run is ready, and its manifest is {manifest}: copy "
            f"{job.run} to the volume, or let it lie there, then kubectl apply -f {manifest}"
        )
