"""What every bench row is: a figure, a bound, and whether it holds."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    """One line of the table; the bench fails above the bound (below it, if `at_least`)."""

    what: str
    value: float
    unit: str
    bound: float
    goal: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


Bench = Callable[[Path], Iterator[Row]]
"""Takes an empty folder, yields rows."""


@dataclass(frozen=True)
class Used:
    """What a child process used."""

    cpu_s: float
    peak_mb: float


def convbench(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
) -> Used:
    """Run a command, with more in its environment; return its CPU seconds and its peak memory.
    Fails with its last words.

    `ru_maxrss` would begin with what this process holds, for it is kept over fork and exec.
    """
    code = (
        "import sys, json, re, resource\n"
        "from convbench.__main__ import main\n"
        "sys.argv = ['convbench', *json.loads(sys.argv[1])]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    u = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())\n"
        "    json.dump([u.ru_utime + u.ru_stime, int(peak[1]) / 1024], open('.used', 'w'))\n"
    )
    here = {**installed(), "OPENAI_API_KEY": "local"}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(list(arguments))],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**here, **(environment or {})},
    )
    if done.returncode != 0:
        raise RuntimeError(f"convbench {' '.join(arguments)}: {done.stderr[-800:]}")
    cpu, peak = json.loads((cwd / ".used").read_text())
    return Used(cpu, peak)


def installed() -> dict[str, str]:
    """Return the environment of a command: bytecode is kept, as that of an installed package is.
    Where it may not be written, every process would compile all that it imports anew."""
    here = {name: said for name, said in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**here, "PYTHONPATH": str(ROOT)}


def high_water(process: int | str = "self") -> float:
    """Return the most memory in MB that a process held since it began (see `convbench`)."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def cpu_of(command: Sequence[str]) -> float:
    """Return the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_questions(path: Path, count: int) -> None:
    """Write questions of our own in arc's schema."""
    from convbench.tasks.demo import rows

    own = rows(seed=0)
    with path.open("w") as file:
        for number in range(count):
            row = own[number % len(own)]
            asked = {**row, "id": f"q{number}", "question": f"({number}) {row['question']}"}
            file.write(json.dumps(asked) + "\n")
