"""Workers as tasks of a Ray cluster (Ray Core). The cluster keeps as many as there are to be: one
that is lost with its node is started again elsewhere, and finds in the run's folder what is left.

The folder must be seen by all nodes under the same path, and convbench be installed there.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from convbench.errors import MissingDependency, RunError
from convbench.install import with_extra
from convbench.workers.on import Crew, Place

LOOK_S = 0.5
USUAL = "CONVBENCH_RAY_OPTIONS"
"""Environment variable with more options of each task, e.g. `num_gpus=1`."""


def usual(place: Place) -> int:
    """Return the cores of the cluster."""
    ray = connected(place.address)
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def written(crew: Crew) -> str:
    """Return what is started and where."""
    where = crew.address or "the cluster of RAY_ADDRESS, or one on this machine"
    line = shlex.join(["convbench", "work", *crew.words])
    options = ", ".join(f"{key}={value}" for key, value in _options().items())
    return f"# {crew.count} tasks on {where} ({options})\n{line}\n"


def _options() -> dict[str, Any]:
    """Return the options of a task: one core, started again for ever, and what the user adds."""
    found: dict[str, Any] = {"num_cpus": 1, "max_retries": -1}
    for part in filter(None, os.environ.get(USUAL, "").replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        try:
            found[name] = float(value) if "." in value else int(value)
        except ValueError:
            raise RunError(f"{USUAL}: found {part!r}; expected numbers, e.g. num_gpus=1") from None
    return found


def connected(address: str | None) -> Any:
    """Return Ray, connected to a cluster."""
    try:
        import ray
    except ImportError:
        raise MissingDependency("ray", needed_for="--on ray", install=with_extra("ray")) from None
    if not ray.is_initialized():
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address=address or os.environ.get("RAY_ADDRESS") or None, log_to_driver=False,
                logging_level="ERROR", include_dashboard=False if address is None else None,
            )  # fmt: skip
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = address or os.environ.get("RAY_ADDRESS") or "here"
            raise RunError(
                f"--on ray: no cluster at {where}: {str(error).splitlines()[0]:.200}"
            ) from None
    return ray


def task(words: Sequence[str], folder: str, paths: Sequence[str]) -> int:
    """Work on a node, in a process that Ray ends with the task; return the exit code."""
    import subprocess

    from convbench.guard import guarded

    os.chdir(folder)
    space = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    space.pop("PYTHONHOME", None)
    command = [sys.executable, "-m", "convbench", "work", *words]
    with subprocess.Popen(  # noqa: S603 - our own command
        guarded(command), stdin=subprocess.PIPE, env=space
    ) as process:
        return process.wait()


class Tasks:
    """Tasks of a cluster."""

    def __init__(self, crew: Crew) -> None:
        self._ray = connected(crew.address)
        self.told: Sequence[str] = ()
        remote = self._ray.remote(**_options())(task)
        paths = [path for path in sys.path if path]
        self._left = [
            remote.remote(list(crew.words), os.getcwd(), paths) for _ in range(crew.count)
        ]
        self._codes: list[int | None] = []

    def alive(self) -> int:
        """Return how many tasks have not ended. One whose node is gone is started again by Ray."""
        ended, self._left = self._ray.wait(
            self._left, num_returns=len(self._left), timeout=LOOK_S
        ) if self._left else ([], [])  # fmt: skip
        for one in ended:
            try:
                self._codes.append(self._ray.get(one))
            except self._ray.exceptions.RayError as error:
                self._codes.append(None)
                self.told = (f"a task ended with: {str(error).splitlines()[0]:.200}",)
        if bad := sum(code not in (0, None) for code in self._codes):
            self.told = (f"{bad} of {len(self._codes)} tasks ended with an error",)
        return len(self._left)

    def stop(self) -> list[str]:
        """End the tasks."""
        for one in self._left:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(one, force=True)
        return []

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()


def start(crew: Crew) -> Tasks:
    """Start the tasks."""
    return Tasks(crew)
