"""Cards of this machine, and machines that have some for a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from convbench.models import devices


def used() -> int:
    """Bytes in use on all cards."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    return sum(int(line) << 20 for line in done.stdout.split())


def simulate(patch: pytest.MonkeyPatch, count: int) -> None:
    """Have this process see so many cards of 80 GB; local models run on the CPU all the same."""
    cards = tuple(devices.Device(str(number), 80 * 10**9) for number in range(count))
    patch.delenv(devices.VISIBLE, raising=False)
    patch.setattr(devices, "_nvidia_devices", lambda: cards)
    on_cpu = property(lambda self: None if self.names is None else "cpu")
    patch.setattr(devices.Placement, "torch_device", on_cpu)


def nvidia_smi(folder: Path, count: int) -> dict[str, str]:
    """Return the environment of a command that sees so many cards; each question adds a line to
    `folder/asked`."""
    program = folder / "nvidia-smi"
    lines = "".join(f"echo '{number}, 81920'\n" for number in range(count))
    program.write_text(f"#!/bin/sh\necho once >> {folder}/asked\n{lines}")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}
