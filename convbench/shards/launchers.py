"""Start the shards of a run: processes here, tasks of Ray, an array of Slurm, a Job of Kubernetes.

Each launcher starts the command of a shard, e.g. `convbench build --run RUN --shard 7/200`, for
every index, a given number at once; if a task or its machine is lost, the scheduler starts it
again. Launchers do not know what a shard holds. To add one: a class with the methods of
`job.Launcher`, and its name in LAUNCHERS.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.errors import MissingDependency, RunError, UsageError
from convbench.models.devices import VISIBLE, list_devices
from convbench.shards.job import Launcher, ShardJob
from convbench.shards.scripts import KubernetesLauncher, SlurmLauncher
from convbench.store.jsonl import disk_error
from convbench.util.guard import die_with_parent, guard_command
from convbench.util.install import with_extra
from convbench.util.regular import open_to_append

GRACE_S = 20.0
"""Seconds that processes have to end after SIGTERM."""
RAY_OPTIONS = "CONVBENCH_RAY_OPTIONS"
"""Environment variable with more options of each task, e.g. `num_gpus=1`."""
RAY_LOOK_S = 0.5


class LocalLauncher:
    """Starts processes on this machine, which end with this one."""

    def default_count(self, address: str | None) -> int:
        """Return the number of cores that this process may use; `address` is ignored."""
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1

    def render_script(self, job: ShardJob) -> str:
        """Return one line with the command of a shard, I for its index, and a comment that says how
        many run at once."""
        line = shlex.join(["convbench", *job.shard_command("I")])
        return f"{line}   # I from 0 to {job.count - 1}, {job.at_once} at once here\n"

    def start_shards(self, job: ShardJob) -> LocalProcesses:
        """Start as many processes as may run at once and return their handle; `poll_shards` starts
        the rest."""
        return LocalProcesses(job)


class LocalProcesses:
    """One process for each shard, a limited number at once."""

    def __init__(self, job: ShardJob) -> None:
        self.notes: list[str] = []
        self._job, self._waiting, self._bad = job, list(job.indices), 0
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._slots: dict[int, int] = {}
        try:
            job.logs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(job.logs_folder, error) from None
        self.poll_shards()

    def poll_shards(self) -> int:
        """Start waiting shards for those that ended.

        Return how many run or wait, 0 once all have ended.

        With failed processes `notes` becomes one line with their number and the folder of logs.
        """
        for index, process in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[index], self._slots[index]
                self._bad += code != 0
        while self._waiting and len(self._running) < self._job.at_once:
            index = self._waiting.pop(0)
            used = self._slots.values()
            self._slots[index] = next(n for n in range(self._job.at_once) if n not in used)
            self._running[index] = self._start_process(index)
        if self._bad:
            self.notes = [f"{self._bad} processes ended with an error; see {self._job.logs_folder}"]
        return len(self._running) + len(self._waiting)

    def stop(self) -> str | None:
        """Send SIGTERM to the processes, wait up to 20 s for each to end, and drop those not
        started. Return None."""
        self._waiting.clear()
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        return None

    def close(self) -> None:
        """Kill the processes that still run, and wait for them. Do nothing if all have ended."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def _start_process(self, index: int) -> subprocess.Popen[bytes]:
        with open_to_append(self._job.logs_folder / f"{index:05}.log") as file:
            return subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "convbench", *self._job.shard_command(index)],
                env={**os.environ, **_cards_of_slot(self._job, self._slots[index])},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )


def _cards_of_slot(job: ShardJob, slot: int) -> dict[str, str]:
    """Return the environment that gives a process its part of this machine's cards; empty without
    any, and where the user names devices."""
    cards = [device.name for device in list_devices()]
    if not cards or any(word.startswith("--devices") for word in job.words):
        return {}
    parts = min(job.at_once, len(cards))
    return {VISIBLE: ",".join(cards[slot % parts :: parts])}


class RayLauncher:
    """Starts tasks of a Ray cluster. Ray restarts one that is lost with its node, without limit.
    All nodes must see the folder under the same path and have convbench installed."""

    def default_count(self, address: str | None) -> int:
        """Return the number of cores of the cluster, at least 1; this connects to it as
        `connect_ray` does."""
        return max(1, int(connect_ray(address).cluster_resources().get("CPU", 1)))

    def render_script(self, job: ShardJob) -> str:
        """Return a comment with cluster, number of tasks and their options, then the command with I
        for the index.

        The cluster is not connected to. Raises RunError for invalid options.
        """
        where = job.address or "the cluster of RAY_ADDRESS, or one on this machine"
        options = ", ".join(f"{key}={value}" for key, value in ray_options().items())
        line = shlex.join(["convbench", *job.shard_command("I")])
        return (
            f"# {len(job.indices)} tasks on {where}, {job.at_once} at once ({options})\n"
            f"{line}   # I from 0 to {job.count - 1}\n"
        )

    def start_shards(self, job: ShardJob) -> RayTasks:
        """Connect to the cluster and return a handle; its `poll_shards` starts the tasks.

        Raises MissingDependency without Ray, RunError without a cluster or for invalid options.
        """
        return RayTasks(job)


def ray_options() -> dict[str, Any]:
    """Return the options of a Ray task by name: `num_cpus` 1, `max_retries` -1, and those of
    RAY_OPTIONS.

    RAY_OPTIONS is read from the environment as `NAME=NUMBER`, separated by commas; numbers with a
    point are floats. Raises RunError if one is no number.
    """
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": -1}
    for part in filter(None, os.environ.get(RAY_OPTIONS, "").replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        try:
            options[name] = float(value) if "." in value else int(value)
        except ValueError:
            raise RunError(
                f"{RAY_OPTIONS}: found {part!r}; expected numbers, e.g. num_gpus=1"
            ) from None
    return options


def connect_ray(address: str | None) -> Any:
    """Return the module `ray`, connected to a cluster; an existing connection is kept.

    Without an address the cluster is that of RAY_ADDRESS, or one is started here. Raises
    MissingDependency without Ray, RunError if there is no cluster at the address.
    """
    try:
        import ray
    except ImportError:
        raise MissingDependency("ray", needed_for="--on ray", install=with_extra("ray")) from None
    if not ray.is_initialized():
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address=address or os.environ.get("RAY_ADDRESS") or None,
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=False if address is None else None,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = address or os.environ.get("RAY_ADDRESS") or "here"
            raise RunError(
                f"--on ray: no cluster at {where}: {str(error).splitlines()[0]:.200}"
            ) from None
    return ray


def ray_task(
    words: Sequence[str],
    folder: str,
    paths: Sequence[str],
    log: str,
    more: Mapping[str, str] | None = None,
) -> int:
    """Run `convbench WORDS` on a node, in a process that ends with the task, and return its exit
    code.

    `folder` becomes the current folder, `paths` the PYTHONPATH, and output is appended to the file
    `log`. `more` is added to its environment.
    """
    os.chdir(folder)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    environment |= more or {}
    environment.pop("PYTHONHOME", None)
    command = guard_command([sys.executable, "-m", "convbench", *words])
    with (
        open_to_append(Path(log)) as file,
        subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment
        ) as process,
    ):
        return process.wait()


class RayTasks:
    """One Ray task for each shard, a limited number at once."""

    def __init__(self, job: ShardJob) -> None:
        self.notes: list[str] = []
        self._job, self._waiting, self._bad = job, list(job.indices), 0
        self._ray = connect_ray(job.address)
        self._task = self._ray.remote(**ray_options())(ray_task)
        self._running: list[Any] = []
        job.logs_folder.mkdir(parents=True, exist_ok=True)

    def poll_shards(self) -> int:
        """Start waiting tasks for those that ended.

        Return how many run or wait, 0 once all have ended.

        It waits up to half a second for tasks to end. Failures become one line of `notes`. Ray
        itself restarts a task whose node is lost.
        """
        while self._waiting and len(self._running) < self._job.at_once:
            index = self._waiting.pop(0)
            log = str(self._job.logs_folder / f"{index:05}.log")
            paths = [path for path in sys.path if path]
            self._running.append(
                self._task.remote(self._job.shard_command(index), os.getcwd(), paths, log)
            )
        if not self._running:
            return 0
        ready, self._running = self._ray.wait(
            self._running, num_returns=len(self._running), timeout=RAY_LOOK_S
        )
        for task in ready:
            try:
                self._bad += self._ray.get(task) != 0
            except self._ray.exceptions.RayError as error:
                self.notes = [f"a task ended with: {str(error).splitlines()[0]:.200}"]
        if self._bad:
            self.notes = [f"{self._bad} tasks ended with an error; see {self._job.logs_folder}"]
        return len(self._running) + len(self._waiting)

    def stop(self) -> str | None:
        """Cancel the tasks and drop those not started. Return None."""
        self._waiting.clear()
        for task in self._running:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(task, force=True)
        return None

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._ray.shutdown()


LAUNCHERS: dict[str, Launcher] = {
    "local": LocalLauncher(),
    "ray": RayLauncher(),
    "slurm": SlurmLauncher(),
    "k8s": KubernetesLauncher(),
}
"""Launchers by their name in `--on`."""


@dataclass(frozen=True)
class LaunchTarget:
    """The value of `--on`, parsed."""

    name: str
    count: int | None = None
    address: str | None = None

    @property
    def launcher(self) -> Launcher:
        """Return the launcher of this name; KeyError for an unknown one, which `parse_target`
        refuses."""
        return LAUNCHERS[self.name]


def parse_target(text: str) -> LaunchTarget:
    """Return the parsed value of `--on`: a launcher's name, and after a colon how many at once, or
    an address.

    Only `ray` takes an address; a plain number is a count for it too. Raises UsageError for
    anything else, such as an unknown launcher or a count of 0.
    """
    name, colon, rest = text.partition(":")
    if name not in LAUNCHERS or (colon and not rest):
        raise UsageError(
            f"--on {text[:80]}: expected one of {', '.join(LAUNCHERS)}, with a number of shards at "
            "once or an address after a colon where it takes one: local:4, ray:10.0.0.1:6379, "
            "slurm:16"
        )
    if rest.isascii() and rest.isdigit() and len(rest) < 7:
        if int(rest) < 1:
            raise UsageError(f"--on {text}: expected at least 1 at once")
        return LaunchTarget(name, int(rest))
    if rest and name != "ray":
        raise UsageError(f"--on {text[:80]}: expected a number after the colon")
    return LaunchTarget(name, None, rest or None)
