"""Who holds a shard: a chain of files, each made exclusively after the one before it.

Entry `00007.3` is either a claim of shard 7 by a worker, or what the worker that held it gave back:
what is done. Entry 4 exists once, so either its holder gives back, or another takes over; whoever
comes second learns from it that the shard is lost to it. Nothing is told by clocks of two machines:
a holder counts as gone when its heartbeat has not moved for the time of a lease, as seen by the
clock of the one who looks, or when its process is no more, on the same machine.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from convbench.errors import RunError
from convbench.schema.noun import Noun
from convbench.store import shards
from convbench.store.exclusive import put_once
from convbench.store.shape import read_model

MOST_LOST = 12
"""Workers in a row that a shard may have lost before nobody takes it any more."""

Short = Field(max_length=200)


class Process(Noun):
    """A process, so that another of the same machine can tell whether it is there."""

    host: str = Short
    """Name of the machine, for people."""
    machine: str = Short
    """Mark of the running system and its space of processes; empty where it tells none."""
    pid: int = Field(ge=1, le=1 << 40)
    """Its number there."""
    started: str = Short
    """When it began, in the system's own count."""


class Entry(Noun):
    """One file of a shard's chain."""

    kind: Literal["held", "free"]
    """Whether somebody holds the shard from here on, or it was given back."""
    worker: str = Field(pattern=r"^[A-Za-z0-9._-]{1,80}$")
    """Whose entry it is."""
    process: Process
    """Its process."""
    done: tuple[str, ...] = Field(default=(), max_length=1024)
    """Tasks that are done."""
    lost: int = Field(default=0, ge=0, le=10_000)
    """Workers in a row that did not give it back."""
    why: str | None = Field(default=None, max_length=2000)
    """What ended the work before all was done."""


def boot() -> str:
    """Return the mark of this machine's system and space of processes; empty where unknown."""
    with suppress(OSError):
        mark = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{mark}:{os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def _started(pid: int) -> str | None:
    """Return when a process began; None where there is none, or it has ended and waits for its
    parent."""
    try:
        said = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if said[0] in (b"Z", b"X") else said[19].decode()


@cache
def _machine() -> tuple[str, str]:
    return socket.gethostname()[:200], boot()


def this_process() -> Process:
    """Return this process."""
    host, machine = _machine()
    pid = os.getpid()
    return Process(host=host, machine=machine, pid=pid, started=_started(pid) or "")


def here(process: Process) -> bool:
    """Whether a process is, or was, one of this machine."""
    machine = _machine()[1]
    return bool(machine) and machine == process.machine


def ended(process: Process) -> bool:
    """Whether a process is known to be no more; false where only silence can tell."""
    return here(process) and _started(process.pid) != process.started


@dataclass(frozen=True)
class Held:
    """A shard that is this process's."""

    run: Path
    index: int
    epoch: int
    entry: Entry
    before: Entry | None
    """What stood there before."""

    @property
    def name(self) -> str:
        """`00007.3`."""
        return f"{self.index:05}.{self.epoch}"

    @property
    def taken_over(self) -> bool:
        """Whether it was not given back by who held it before."""
        return self.before is not None and self.before.kind == "held"

    def lost(self) -> bool:
        """Whether another took it over."""
        return _file(self.run, self.index, self.epoch + 1).exists()

    def give_back(self, done: Collection[str], why: str | None = None) -> bool:
        """Say what is done; return False where the shard was lost meanwhile."""
        entry = self.entry.model_copy(
            update={"kind": "free", "done": tuple(sorted(done)), "lost": 0,
                    "why": None if why is None else why[:2000]}
        )  # fmt: skip
        return put_once(_file(self.run, self.index, self.epoch + 1), _bytes(entry))


@dataclass
class Watch:
    """Tells which holders have gone silent, by this process's own clock."""

    run: Path
    lease_s: float
    _seen: dict[str, tuple[object, float]] = field(default_factory=dict)

    def silent(self, entry: Entry) -> bool:
        """Whether a holder is gone."""
        if ended(entry.process):
            return True
        beat = shards.told(self.run / shards.FOLDER / shards.WORKERS / entry.worker).get("beat")
        now = time.monotonic()
        before = self._seen.get(entry.worker)
        if before is None or before[0] != beat:
            self._seen[entry.worker] = (beat, now)
            return False
        return now - before[1] > self.lease_s


def chain(run: Path) -> Path:
    """Return the folder of all entries."""
    return run / shards.FOLDER / shards.CLAIMS


def _file(run: Path, index: int, epoch: int) -> Path:
    return chain(run) / f"{index:05}.{epoch}"


def _bytes(entry: Entry) -> bytes:
    return entry.model_dump_json().encode() + b"\n"


def last(run: Path, index: int, epoch: int) -> Entry | None:
    """Return a shard's entry of an epoch; None for epoch 0, which nobody held."""
    return read_model(_file(run, index, epoch), Entry) if epoch else None


def claim(
    run: Path,
    order: Sequence[int],
    tasks: Collection[str],
    worker: str,
    watch: Watch,
    finished: set[int],
    skipped: Callable[[Entry], bool] = lambda entry: False,
) -> Held | None:
    """Claim the first shard in this order that lacks one of these tasks and is held by nobody;
    None where there is none now. Those found done are added to `finished` and not looked at again.

    `skipped` tells which ones given back with a reason are to be left alone.
    """
    wanted = set(tasks)
    epochs = shards.newest(chain(run), shards.MOST)
    for index in order:
        if index in finished:
            continue
        epoch = epochs.get(index, 0)
        before = last(run, index, epoch)
        if before is not None and before.kind == "free" and wanted <= set(before.done):
            finished.add(index)
            continue
        if before is not None and _left_alone(before, watch, skipped):
            continue
        lost = 0 if before is None else before.lost + (before.kind == "held")
        done = before.done if before is not None else ()
        entry = Entry(
            kind="held", worker=worker, process=this_process(), done=done, lost=lost
        )  # fmt: skip
        if put_once(_file(run, index, epoch + 1), _bytes(entry)):
            return Held(run, index, epoch + 1, entry, before)
    return None


def _left_alone(before: Entry, watch: Watch, skipped: Callable[[Entry], bool]) -> bool:
    if before.kind == "held":
        return before.lost >= MOST_LOST or not watch.silent(before)
    return before.why is not None and skipped(before)


@dataclass
class Listed:
    """How far a run's shards are."""

    count: int
    done: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    """Those that nobody holds."""
    held: dict[int, Entry] = field(default_factory=dict)
    """Those in work, or left by who is no more."""
    stopped: dict[int, str] = field(default_factory=dict)
    """Those given back with the reason why they are not done."""
    given_up: list[int] = field(default_factory=list)
    """Those that lost too many workers."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return len(self.done) == self.count


def listed(run: Path, plan: shards.ShardPlan | None = None) -> Listed:
    """Return how far each shard is. RunError for a run without shards."""
    plan = plan or shards.read_plan(run)
    wanted = {task.name for task in plan.tasks}
    epochs = shards.newest(chain(run), plan.count)
    found = Listed(plan.count)
    for index in range(plan.count):
        entry = last(run, index, epochs.get(index, 0))
        if entry is None:
            found.waiting.append(index) if wanted else found.done.append(index)
        elif entry.kind == "held":
            if entry.lost >= MOST_LOST and ended(entry.process):
                found.given_up.append(index)
            else:
                found.held[index] = entry
        elif wanted <= set(entry.done):
            found.done.append(index)
        else:
            found.waiting.append(index)
            if entry.why is not None:
                found.stopped[index] = entry.why
    return found


def in_work(run: Path) -> list[int]:
    """Return the shards that somebody holds who may be there still."""
    held = listed(run).held
    return [index for index, entry in held.items() if not ended(entry.process)]


def refuse_in_work(run: Path, doing: str) -> None:
    """Raise RunError where workers are at a run."""
    if found := in_work(run):
        raise RunError(
            f"{run}: {len(found)} of its shards {'is' if len(found) == 1 else 'are'} in work; "
            f"expected none for {doing}: wait for the workers to end, or stop them"
        )


def reopen(run: Path, plan: shards.ShardPlan, task: str, lacking: Collection[int]) -> None:
    """Say of shards that lack something of a task that it is not done, and of those that were
    stopped that they may be taken again."""
    epochs = shards.newest(chain(run), plan.count)
    for index in range(plan.count):
        epoch = epochs.get(index, 0)
        entry = last(run, index, epoch)
        if entry is None or entry.kind == "held":
            continue
        done = tuple(name for name in entry.done if name != task or index not in lacking)
        if done != entry.done or entry.why is not None:
            new = entry.model_copy(update={"done": done, "why": None})
            put_once(_file(run, index, epoch + 1), _bytes(new))
