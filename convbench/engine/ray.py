"""`--shards N --on ray[:ADDRESS]`: run one command as N ordinary runs on a Ray cluster.

A task runs the typed command line with `--shard I/N` in a folder of its own, `RUN-shards/I`. A task
whose node is lost is started again by Ray, and resumes its run: it pays again only for the calls
that were in flight. All nodes must see the folder under the same path and have convbench installed.
Keys come from each node's own environment; none goes through Ray.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convbench.errors import MissingDependency, RunError
from convbench.util.guard import guard_command
from convbench.util.install import with_extra

RETRIES = 100
"""Restarts of a shard whose node or process is lost; each resumes its run."""


def run_shards(
    words: Sequence[str],
    run: Path,
    shards: int,
    *,
    address: str | None = None,
    budget: float | None = None,
    budget_tokens: int | None = None,
) -> list[Path]:
    """Run `convbench WORDS` once for each shard on a Ray cluster; return the shards' folders.

    `words` are the typed command without --run, --shards, --on and the budgets, which are divided
    by the shards. Without an address the cluster is that of RAY_ADDRESS, or one is started here.
    Raise MissingDependency without Ray, RunError without a cluster or if a shard fails; the same
    command then resumes.
    """
    ray = _connect(address)
    place = run.resolve().with_name(f"{run.name}-shards")
    place.mkdir(parents=True, exist_ok=True)
    folders = [place / str(number) for number in range(shards)]
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_command)
    more = ["--quiet"]
    if budget is not None:
        more += ["--budget", str(budget / shards)]
    if budget_tokens is not None:
        more += ["--budget-tokens", str(budget_tokens // shards)]
    running = []
    for number, folder in enumerate(folders):
        one = [*words, *more, "--shard", f"{number}/{shards}", "--run", str(folder)]
        running.append(task.remote(one, os.getcwd(), [path for path in sys.path if path]))
    try:
        codes = ray.get(running)
    except BaseException:
        for handle in running:
            ray.cancel(handle, force=True)
        raise
    failed = [folder for folder, code in zip(folders, codes, strict=True) if code != 0]
    if failed:
        log = failed[0].with_suffix(".log")
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it wrote nothing"]
        raise RunError(
            f"{len(failed)} of {shards} shards failed, the first with: {last[0][:300]}; log {log}; "
            "repeat the command to resume"
        )
    return folders


def run_command(words: Sequence[str], folder: str, paths: Sequence[str]) -> int:
    """Run `convbench WORDS` on a node, in a process that ends with the task; return its exit code.

    `folder` becomes its current folder, `paths` its PYTHONPATH; output is appended to the log of
    the run, which is the last word. Its environment is the node's own.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = guard_command([sys.executable, "-m", "convbench", *words])
    with (
        open(Path(words[-1]).with_suffix(".log"), "ab") as file,
        subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment, cwd=folder
        ) as process,
    ):
        return process.wait()


def _connect(address: str | None) -> Any:
    """Return the module `ray`, connected to a cluster; an existing connection is kept."""
    try:
        import ray
    except ImportError:
        raise MissingDependency("ray", needed_for="--on ray", install=with_extra("ray")) from None
    where = address or os.environ.get("RAY_ADDRESS")
    if not ray.is_initialized():
        try:
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            line = str(error).splitlines()[0][:200]
            raise RunError(f"--on ray: no cluster at {where or 'this machine'}: {line}") from None
    return ray
