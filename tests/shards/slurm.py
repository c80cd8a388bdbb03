"""A stand-in of Slurm: `sbatch` starts the tasks of an array as processes, so many at once, and
queues a task again whose node was lost, which is a task that ended by a signal."""

from __future__ import annotations

import os
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path

SBATCH = """#!{python}
import os, subprocess, sys
with open(os.devnull) as nothing:
    subprocess.Popen([sys.executable, {supervisor!r}, sys.argv[-1]], start_new_session=True,
                     stdin=nothing, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("4711;cluster")
"""
SUPERVISOR = """
import os, re, subprocess, sys, time
script = open(sys.argv[1]).read()
ranges, at_once = re.search(r"--array=([0-9,-]+)%([0-9]+)", script).groups()
waiting = []
for part in ranges.split(","):
    first, _, last = part.partition("-")
    waiting += range(int(first), int(last or first) + 1)
running = {{}}
while waiting or running:
    while waiting and len(running) < int(at_once):
        task = waiting.pop(0)
        running[task] = subprocess.Popen(
            ["bash", sys.argv[1]], env={{**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}},
            stdin=subprocess.DEVNULL, start_new_session=True)
    for task, process in list(running.items()):
        if (code := process.poll()) is not None:
            del running[task]
            if (code < 0 or code > 128) and "#SBATCH --requeue" in script:
                waiting.append(task)
                open({state!r} + ".requeued", "a").write("%d\\n" % task)
    with open({state!r} + ".new", "w") as file:
        for task in [*waiting, *running]:
            process = running.get(task)
            file.write("4711_%d %s\\n" % (task, process.pid if process else "-"))
    os.replace({state!r} + ".new", {state!r})
    time.sleep(0.05)
"""
SQUEUE = """#!{python}
import os, time
for _ in range(100):
    if os.path.exists({state!r}):
        break
    time.sleep(0.05)
print(open({state!r}).read(), end="")
"""
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'


def install(folder: Path) -> dict[str, str]:
    """Write the programs; return what an environment needs to find them."""
    programs = folder / "bin"
    programs.mkdir()
    names = {"python": sys.executable, "state": str(folder / "queue"),
             "supervisor": str(folder / "supervisor")}  # fmt: skip
    (folder / "supervisor").write_text(SUPERVISOR.format(**names))
    texts = {"sbatch": SBATCH.format(**names), "squeue": SQUEUE.format(**names), "srun": SRUN}
    for name, text in texts.items():
        file = programs / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{programs}:{os.environ['PATH']}", "CONVBENCH_SLURM_LOOK_S": "0.2"}


def tasks(folder: Path) -> list[int]:
    """Return the processes of the tasks that run, each the first of its group."""
    with suppress(FileNotFoundError):
        lines = (folder / "queue").read_text().splitlines()
        return [int(pid) for pid in (line.split()[1] for line in lines) if pid != "-"]
    return []


def lose_node(task: int) -> bool:
    """Kill all processes of a task at once; return whether there were any."""
    try:
        os.killpg(task, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def requeued(folder: Path) -> int:
    """Return how often a task was queued again."""
    file = folder / "queue.requeued"
    return len(file.read_text().splitlines()) if file.exists() else 0
