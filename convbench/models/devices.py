"""The accelerators of this machine, and which of them a model gets; does not import torch.

All code that needs to know the accelerators asks here. `CONVBENCH_SIMULATED_DEVICES=4x80` simulates
four devices of 80 GB each: models run on the CPU, but placement and waiting are as with devices.
"""

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
SIMULATED = "CONVBENCH_SIMULATED_DEVICES"
"""Environment variable: accelerators as `COUNTxGB`."""
GB = 10**9
ROLES: tuple[Role, ...] = ("policy", "teacher", "judge", "trainer")


@dataclass(frozen=True)
class Device:
    """One accelerator that this process may use."""

    name: str
    """Its name in CUDA_VISIBLE_DEVICES."""
    memory: int
    """Its memory in bytes; 0 if unknown."""


def list_devices() -> tuple[Device, ...]:
    """Return the accelerators that this process may use; a device's number is its index here.

    They are those simulated by CONVBENCH_SIMULATED_DEVICES, else those that `nvidia-smi` lists,
    asked once a process;
    CUDA_VISIBLE_DEVICES selects and orders them, with memory 0 for a name that is not listed. The
    tuple is empty without any. Raise SpecError if the simulated ones are not `COUNTxGB`.
    """
    simulated = os.environ.get(SIMULATED)
    devices = _simulated_devices(simulated) if simulated else _nvidia_devices()
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return devices
    names = [name.strip() for name in visible.split(",")]
    memory = {device.name: device.memory for device in devices}
    return tuple(Device(name, memory.get(name, 0)) for name in names if name not in ("", "-1"))


def _simulated_devices(text: str) -> tuple[Device, ...]:
    try:
        count, memory = parse_cards(text)
    except ValueError as error:
        raise SpecError(f"{SIMULATED}: {error}") from None
    return tuple(Device(str(n), memory * GB) for n in range(count))


def parse_cards(text: str) -> tuple[int, int]:
    """Return (number of accelerators, GB of each) of `COUNTxGB`. Raises ValueError for anything
    else."""
    sizes = re.fullmatch(r"([1-9]\d?)x([1-9]\d{0,3})", text)
    if sizes is None:
        raise ValueError(f"found {text!r:.40}; expected COUNTxGB, e.g. 4x80")
    return int(sizes[1]), int(sizes[2])


def host_memory() -> int:
    """Return the bytes of this machine's own memory, that of its accelerators not included."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@cache
def _nvidia_devices() -> tuple[Device, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    command = [program, "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    lines = [line.split(",") for line in done.stdout.splitlines()] if not done.returncode else []
    return tuple(
        Device(line[0].strip(), int(line[1]) << 20 if line[1].strip().isdigit() else 0)
        for line in lines
        if len(line) == 2
    )


@dataclass(frozen=True)
class Placement:
    """The devices of a model that runs on this machine."""

    names: tuple[str, ...] | None = None
    """Its devices as in CUDA_VISIBLE_DEVICES; empty is the CPU, None sets no restriction."""
    share: float | None = None
    """Share of their memory; None: all of it."""
    vllm: Mapping[str, Flag] | None = field(default=None, hash=False)
    """Arguments of its vLLM server; None: none are set."""

    @property
    def split(self) -> int:
        """Devices that each copy in a vLLM server is split over: what the user sets, else 1."""
        return self._vllm_number("tensor-parallel-size") or 1

    @property
    def copies(self) -> int:
        """Copies in a vLLM server: what the user sets, else as many as its devices hold."""
        own = self._vllm_number("data-parallel-size")
        return own or max(1, len(self.names or ()) // self.split)

    def _vllm_number(self, name: str) -> int | None:
        """Return a whole number among the arguments of the vLLM server, else None."""
        values = [v for key, v in (self.vllm or {}).items() if key.replace("_", "-") == name]
        return int(str(values[-1])) if values and str(values[-1]).isdigit() else None

    @property
    def torch_device(self) -> str | None:
        """The first device as torch names it in this process: `cuda:N` or `cpu`; None if `names`
        is None. Simulated devices are the CPU."""
        if self.names is None:
            return None
        if not self.names or os.environ.get(SIMULATED):
            return "cpu"
        return f"cuda:{[device.name for device in list_devices()].index(self.names[0])}"

    def extra_environment(self) -> dict[str, str]:
        """Return `{"CUDA_VISIBLE_DEVICES": "0,1"}` for these devices, empty text for the CPU.

        The dict is empty if `names` is None.
        """
        return {} if self.names is None else {VISIBLE: ",".join(self.names)}


def placement_of(devices: Devices, role: str) -> Placement | None:
    """Return devices, share and vLLM arguments of one role; None if none of the three is set.

    Raise SpecError for a device that this machine lacks.
    """
    numbers = devices.for_role(role)
    share, vllm = devices.share.get(role), devices.vllm.get(role)  # type: ignore[call-overload]
    if numbers is None and share is None and vllm is None:
        return None
    names = None if numbers is None else names_of(numbers, f"devices: {role}")
    return Placement(names, share, vllm)


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


def names_of(numbers: Sequence[int], what: str) -> tuple[str, ...]:
    """Return the names in CUDA_VISIBLE_DEVICES of devices, given their numbers, in that order.

    Raise SpecError, whose message begins with `what`, for a number that this machine lacks.
    """
    devices = list_devices()
    for number in numbers:
        if number >= len(devices):
            has = f"devices 0 to {len(devices) - 1}" if devices else "no device that can be seen"
            raise SpecError(f"{what}: found {number}; this machine has {has}")
    return tuple(devices[number].name for number in numbers)


def missing_devices(devices: Devices) -> dict[Role, str]:
    """Return {role: error message} for each role with a device that this machine lacks; else empty.

    The roles are policy, teacher, judge and trainer.
    """
    errors: dict[Role, str] = {}
    for role in ROLES:
        try:
            placement_of(devices, role)
        except SpecError as error:
            errors[role] = str(error)
    return errors
