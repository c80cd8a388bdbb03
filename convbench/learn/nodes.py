"""One training over several machines: which one this is, and where all meet.

Every machine gives the same command, `convbench train … --nodes N`; what differs between them the
scheduler says in the environment. The folder is one that all of them see.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from convbench.errors import SpecError
from convbench.schema.recipe import Launch

RANK, MASTER = "CONVBENCH_NODE_RANK", "CONVBENCH_MASTER"
"""Environment variables: the number of this machine from 0, and `HOST:PORT` of the first one."""
MOST = 4096
HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,255}")
PORTS = (20_000, 40_000)
"""Ports of which a job's number picks one, where nobody names it."""


@dataclass(frozen=True)
class Meeting:
    """What one machine knows of all."""

    rank: int
    machines: int
    host: str
    port: int


def meeting(machines: int, environ: Mapping[str, str] = os.environ) -> Meeting:
    """Return which of the machines this is: by CONVBENCH_NODE_RANK and CONVBENCH_MASTER, or by
    Slurm. Raises SpecError where nobody says, or it does not fit."""
    rank = _number(environ, RANK, "SLURM_NODEID")
    if rank is None:
        raise SpecError(
            f"--nodes {machines}: found no {RANK} and no SLURM_NODEID; expected to be started by a "
            f"scheduler (--on slurm, --on ray), or {RANK}=0… and {MASTER}=HOST:PORT on each machine"
        )
    told = _number(environ, "SLURM_NNODES")
    if RANK not in environ and told is not None and told != machines:
        raise SpecError(f"--nodes {machines}: found SLURM_NNODES {told}; expected the same number")
    if not rank < machines:
        raise SpecError(f"--nodes {machines}: found rank {rank}; expected 0 to {machines - 1}")
    host, port = _first(environ)
    return Meeting(rank, machines, host, port)


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        if name in environ:
            if not re.fullmatch(r"\d{1,6}", environ[name].strip()):
                raise SpecError(f"{name}: found {environ[name]!r:.60}; expected a whole number")
            return int(environ[name])
    return None


def _first(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port of the first machine."""
    said = environ.get(MASTER)
    if said:
        host, _, port = said.rpartition(":")
        if not HOST.fullmatch(host) or not port.isdigit() or not 0 < int(port) < 65_536:
            raise SpecError(f"{MASTER}: found {said!r:.80}; expected HOST:PORT")
        return host, int(port)
    names = environ.get("SLURM_JOB_NODELIST")
    if not names:
        raise SpecError(f"found no {MASTER} and no SLURM_JOB_NODELIST; expected HOST:PORT of the "
                        f"first machine in {MASTER}")  # fmt: skip
    least, most = PORTS
    job = _number(environ, "SLURM_JOB_ID") or 0
    return _first_host(names), least + job % (most - least)


def _first_host(names: str) -> str:
    """Return the first of Slurm's list of hosts."""
    try:
        done = subprocess.run(  # noqa: S603 - the scheduler's own program
            ["scontrol", "show", "hostnames", names],  # noqa: S607 - on the user's path
            capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise SpecError(f"scontrol show hostnames: {error}; set {MASTER}=HOST:PORT") from None
    host = done.stdout.split("\n")[0].strip()
    if not HOST.fullmatch(host):
        raise SpecError(f"scontrol show hostnames: found {host!r:.80}; expected a host's name")
    return host


def on_machines(launch: Launch, found: Meeting) -> Launch:
    """Return a launch for one machine as one of several: its processes on each of them."""
    if launch.accelerate is None:
        raise SpecError(
            f"--nodes {found.machines}: launch {launch.name!r} starts one process without a "
            "launcher; expected --launch ddp, zero2, zero3 or fsdp"
        )
    settings = {
        **launch.accelerate,
        "num_machines": found.machines, "machine_rank": found.rank,
        "num_processes": int(launch.accelerate["num_processes"]) * found.machines,
        "main_process_ip": found.host, "main_process_port": found.port,
    }  # fmt: skip
    return launch.model_copy(update={"accelerate": settings})
