"""How many planted faults of a simulated human the review finds, and how often it errs.

    python -m tests.bench simulators
    python -m tests.bench.simulators FOLDER tuned|kept

The second form prints what was missed and what was a false alarm; only `tuned` was looked at while
the rules were written.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from convbench.judges.review.faults import FaultName
from convbench.judges.review.rules import faults
from convbench.options.build import BuildOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.rollout.build import build_or_resume
from convbench.schema import Conversation, Example, ProtocolSpec, text_of
from convbench.store import Run
from tests.bench import planted
from tests.bench.bench import Row
from tests.bench.sandbox import TASKS

QUIET = CallOptions(quiet=True)
HALVES = planted.HALVES
WORLDS = ("pocket-collaboration", "colbench-backend")
TIMES = 100
"""Planted conversations of each fault in each world."""
CLEAN = 1000
"""Clean conversations of each world."""
RULE = "rule:tests.bench.planted"
VARIANTS = 5
"""Conversations about each task of ColBench."""
Talks = list[tuple[Conversation, Example]]


def world(folder: Path, tasks: int = 1000) -> Run:
    """Return conversations of the embedded policy with its rule human."""
    shape = RunSettings(samples=3, seed=11)
    build_or_resume(
        BuildOptions(
            task=WORLDS[0], tasks=tasks, model="pocket", run=folder, shape=shape, calls=QUIET
        )
    )
    return Run.open(folder)


def colbench(folder: Path, variant: int, tasks: int | None = None) -> Run:
    """Return conversations about real tasks with a human by rules."""
    planted.VARIANT[0] = str(variant)
    sets = (f"task.source.file={TASKS}", f"task.speakers.human={RULE}:human")
    build_or_resume(BuildOptions(
        task=WORLDS[1], tasks=tasks, model=f"{RULE}:agent", run=folder, calls=QUIET,
        shape=RunSettings(samples=1, temperatures=(1.0,)), specs=SpecOptions(sets=sets),
    ))  # fmt: skip
    return Run.open(folder)


def talks(folder: Path, name: str, half: str) -> tuple[Talks, ProtocolSpec]:
    """Return the conversations of a world in which the human spoke, of one half of its tasks."""
    places = [folder / f"{name}-{n}" for n in range(VARIANTS if name == WORLDS[1] else 1)]
    runs = [
        Run.open(place) if (place / "run.json").exists()
        else colbench(place, n) if name == WORLDS[1] else world(place)
        for n, place in enumerate(places)
    ]  # fmt: skip
    found = [
        (talk, run.examples[talk.example_id])
        for run in runs for talk in run.conversations()
        if talk.failure is None and len(talk.turns) > 2
        and planted.half_of(run.examples[talk.example_id].question
                            if name == WORLDS[1] else talk.example_id) == half
    ]  # fmt: skip
    return found, runs[0].manifest.protocol


def tried(
    folder: Path, name: str, half: str
) -> Iterator[tuple[str, bool, Conversation, set[FaultName]]]:
    """Yield (fault that was planted or "", whether the review was right, conversation, found)."""
    found, protocol = talks(folder, name, half)
    for talk, example in found[:CLEAN]:
        told = {one.fault for one in faults(talk, example, protocol)}
        yield "", not told, talk, told
    for fault, talk, example in planted.many(found, protocol, half, TIMES):
        told = {one.fault for one in faults(talk, example, protocol)}
        yield fault, fault in told, talk, told


def simulators(folder: Path) -> Iterator[Row]:
    """Yield the shares of faults found, by name, and of false alarms, on the kept half."""
    for name in WORLDS:
        if name == WORLDS[1] and not TASKS.exists():
            continue
        right, all_ = Counter[str](), Counter[str]()
        for fault, good, _, _ in tried(folder, name, "kept"):
            all_[fault] += 1
            right[fault] += good
        clean = all_.pop("")
        wrong = 100 * (1 - right.pop("") / clean)
        yield Row(f"{name}: false alarms in {clean} clean conversations", wrong, "%", 2)
        share = 100 * right.total() / all_.total()
        yield Row(f"{name}: planted faults found of {all_.total()}", share, "%", 95, at_least=True)
        least, fault = min((100 * right[one] / all_[one], one) for one in all_)
        yield Row(f"{name}: of the fault found least ({fault})", least, "%", 80, at_least=True)


def main() -> None:
    """Print what was missed and what was a false alarm."""
    folder, half = Path(sys.argv[1]), sys.argv[2]
    for name in WORLDS:
        right, all_ = Counter[str](), Counter[str]()
        for fault, good, talk, told in tried(folder, name, half):
            all_[fault] += 1
            right[fault] += good
            if not good and half == "tuned":
                said = [text_of(t.content)[:150] for t in talk.turns[1:] if t.speaker == "human"]
                print(f"{name} {fault or 'clean'}: {sorted(told)} {said}")
        print(name, {one or "clean": f"{right[one]}/{all_[one]}" for one in all_})


if __name__ == "__main__":
    main()
