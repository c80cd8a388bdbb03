"""The accelerators of this machine, and which of them a model gets; does not import torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

from convbench.errors import FatalModelError, SpecError
from convbench.schema.run import Devices, Flag, Role

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Device:
    """An accelerator: its name in CUDA_VISIBLE_DEVICES and its bytes of memory, 0 if unknown."""

    name: str
    memory: int


def list_devices() -> tuple[Device, ...]:
    """Return the accelerators that `nvidia-smi` lists, asked once a process, as
    CUDA_VISIBLE_DEVICES selects and orders them; a device's number is its index here."""
    devices = _nvidia_devices()
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return devices
    memory = {device.name: device.memory for device in devices}
    names = [name.strip() for name in visible.split(",")]
    return tuple(Device(name, memory.get(name, 0)) for name in names if name not in ("", "-1"))


@cache
def _nvidia_devices() -> tuple[Device, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    command = [program, "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    lines = re.findall(r"^(\d+), *(\d*)", done.stdout, re.MULTILINE)
    return tuple(Device(name, int(mebibytes or 0) << 20) for name, mebibytes in lines)


@dataclass(frozen=True)
class Placement:
    """The devices of a model that runs on this machine."""

    names: tuple[str, ...] | None = None
    """Its devices as in CUDA_VISIBLE_DEVICES; empty is the CPU, None sets no restriction."""
    share: float | None = None
    """Share of their memory; None: all of it."""
    vllm: Mapping[str, Flag] = field(default_factory=dict, hash=False)
    """Arguments of its vLLM server by name, with hyphens."""

    @property
    def split(self) -> int:
        """Devices that each copy in a vLLM server is split over: what the user sets, else 1."""
        value = self.vllm.get("tensor-parallel-size")
        return value if isinstance(value, int) and value > 0 else 1

    @property
    def torch_device(self) -> str | None:
        """The first device as torch names it in this process: `cuda:N` or `cpu`; None if `names`
        is None."""
        if not self.names:
            return None if self.names is None else "cpu"
        return f"cuda:{[device.name for device in list_devices()].index(self.names[0])}"


def placement_of(devices: Devices, role: Role) -> Placement | None:
    """Return devices, share and vLLM arguments of one role; None if none of the three is set.
    Raise SpecError for a device that this machine lacks."""
    numbers, seen = devices.for_role(role), list_devices()
    for number in numbers or ():
        if number >= len(seen):
            has = f"devices 0 to {len(seen) - 1}" if seen else "no device that can be seen"
            raise SpecError(f"devices: {role}: found {number}; this machine has {has}")
    names = None if numbers is None else tuple(seen[number].name for number in numbers)
    vllm = {name.replace("_", "-"): value for name, value in devices.vllm.get(role, {}).items()}
    placement = Placement(names, devices.share.get(role), vllm)
    return None if placement == Placement() else placement


def check_apart(engines: Sequence[tuple[str, Placement | None]]) -> None:
    """Raise FatalModelError if two different models (reference, placement) that this machine runs
    at the same time have a device in common and not each a share of it."""
    seen = [device.name for device in list_devices()]
    for (one, first), (other, second) in combinations(engines, 2):
        placements = [placement or Placement() for placement in (first, second)]
        names = [set(seen if p.names is None else p.names) for p in placements]
        if one != other and names[0] & names[1] and not all(p.share for p in placements):
            raise FatalModelError(
                f"{one} and {other} run at once on this machine; expected devices of their own "
                "(--devices 'policy=[0]' --devices 'teacher=[1]') or shares of the same ones "
                "(--devices share.policy=0.45 --devices share.teacher=0.45)"
            )
