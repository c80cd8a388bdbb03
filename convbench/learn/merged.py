"""Merge several runs into one log: conversations joined, rewards aligned, questions ordered."""

from __future__ import annotations

import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from convbench.errors import TrainError, UsageError
from convbench.learn.flagged import Flagged
from convbench.learn.logged import LARGE, Logged
from convbench.learn.select import Selection, check, collect, hashed, nearest, select
from convbench.schema import fingerprint
from convbench.schema.recipe import Align, Data, Order
from convbench.store.run import Run


def log_of(runs: Sequence[Run], data: Data, large: int = LARGE) -> Selection:
    """Return the conversations of all runs as one log.

    Conversations of one question under one protocol are one group, whichever run holds them.
    Raises TrainError as `select` does, and if `data.mix` or `data.judges` do not have one value a
    run, or if rewards of several judges are not aligned; UsageError if a run comes twice.
    """
    _one_each(runs, data)
    if len(runs) == 1:
        found = select(runs[0], data, large)
    else:
        each = enumerate(runs)
        found = _joined([collect(run, _of_run(data, at), large=large) for at, run in each])
        _comparable(found, data.align)
        if data.rows is not None:
            logged = nearest(found, data.rows, data.unit)
            beyond = {"beyond data.rows": len(found.logged) - len(logged)}
            found = replace(found, logged=logged, skipped=found.skipped | beyond)
        check(found.run, found.judge, found.logged, Counter(found.skipped))
    if data.align != "none":
        found = replace(found, logged=_aligned(found, data.align))
    return _ordered(found, data.order)


def _one_each(runs: Sequence[Run], data: Data) -> None:
    """Refuse a run that comes twice, and lists that do not have one value a run."""
    ids = Counter(run.manifest.id for run in runs)
    twice = next((run for run in runs if ids[run.manifest.id] > 1), None)
    if twice is not None:
        raise UsageError(
            f"--run {twice.path}: found it twice; expected each run once; to weigh it "
            "double: --set data.mix=[2,1]"
        )
    for name, said in (("mix", data.mix), ("judges", data.judges)):
        if said and len(said) != len(runs):
            raise TrainError(
                f"data.{name}: found {len(said)} for {len(runs)} run(s); expected one for each "
                "--run, in their order"
            )


def _of_run(data: Data, place: int) -> Data:
    """Return the data settings of the run at a position."""
    judge = data.judges[place] if data.judges else data.judge
    return data.model_copy(update={"judge": judge})


def _joined(parts: Sequence[Selection]) -> Selection:
    """Return the selections as one; each conversation has its run and its question's group."""
    flagged = Flagged(parts[0].flagged.rule)
    skipped: Counter[str] = Counter()
    for part in parts:
        skipped.update(part.skipped)
        flagged.conversations += part.flagged.conversations
        flagged.findings.update(part.flagged.findings)
    names = _Names()
    logged, unrewarded = list[Logged](), list[Logged]()
    for part in parts:
        logged += names.give(part.run, part.logged)
        unrewarded += names.give(part.run, part.unrewarded)
    judges = " + ".join(dict.fromkeys(part.judge for part in parts if part.judge))
    return Selection(parts[0].run, judges, logged, dict(skipped), flagged, unrewarded, tuple(parts))


class _Names:
    """Names of questions across runs: the same for one question under one protocol."""

    def __init__(self) -> None:
        self.marks: dict[str, list[str]] = {}

    def give(self, run: Run, items: Iterable[Logged]) -> Iterator[Logged]:
        """Yield the conversations with their run and the name of their question."""
        manifest = run.manifest
        under = fingerprint(manifest.task.name, manifest.protocol, manifest.mode)
        for name, some in groupby(items, key=lambda item: item.example_id):
            group = ""
            for item in some:
                group = group or self._group(name, fingerprint(under, item.example))
                yield replace(item, run=run, group=group)

    def _group(self, name: str, mark: str) -> str:
        known = self.marks.setdefault(name, [])
        if mark not in known:
            known.append(mark)
        number = known.index(mark) + 1
        return name if number == 1 else f"{name}#{number}"


def _comparable(found: Selection, align: Align) -> None:
    """Raise TrainError for rewards of several judges without `align`."""
    versions = {(part.judge, v) for part in found.parts if part.logged for v in part.versions}
    if len(versions) > 1 and align == "none":
        told = ", ".join(
            f"{part.run.path.name}: {part.judge}" for part in found.parts if part.judge
        )
        raise TrainError(
            f"found rewards of {len(versions)} judges or versions of one ({told}), whose scales "
            "may differ; expected one, or --set data.align=standard, range or rank"
        )


def _aligned(found: Selection, align: Align) -> Sequence[Logged]:
    """Return the conversations with aligned rewards, mapped separately for each task and judge;
    rewards of turns are mapped by the values of turns."""
    judges = {part.run.manifest.id: part.judge for part in found.parts}

    def scale(item: Logged) -> tuple[str, str]:
        manifest = found.run_of(item).manifest
        return manifest.task.name, judges.get(manifest.id, found.judge)

    whole: dict[tuple[str, str], array[float]] = {}
    turns: dict[tuple[str, str], array[float]] = {}
    for item in found.logged:
        whole.setdefault(scale(item), array("d")).append(item.reward)
        turns.setdefault(scale(item), array("d")).extend(item.turns)
    maps = {name: aligner(values, align) for name, values in whole.items()}
    inner = {name: aligner(values, align) for name, values in turns.items() if values}

    def aligned(item: Logged) -> Logged:
        name = scale(item)
        own = tuple(inner[name](value) for value in item.turns)
        return replace(item, reward=maps[name](item.reward), turns=own)

    return [aligned(item) for item in found.logged]


def aligner(values: Sequence[float], align: Align) -> Callable[[float], float]:
    """Return the function that maps a reward among these values to the common scale. If all are
    equal, it returns 0 for `standard`, 0.5 for `range` and `rank`."""
    if align == "rank":
        there, most = sorted(values), max(len(values) - 1, 1)
        flat = there[0] == there[-1]
        return lambda value: (
            0.5 if flat else (bisect_left(there, value) + bisect_right(there, value) - 1) / 2 / most
        )
    if align == "range":
        low, wide = min(values), max(values) - min(values)
        return (lambda value: (value - low) / wide) if wide else lambda value: 0.5
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    return (lambda value: (value - mean) / std) if std > 1e-12 else lambda value: 0.0


def _ordered(found: Selection, order: Order) -> Selection:
    """Return the log with its questions in the order of the curriculum."""
    if order == "shuffled":
        return found
    measure = statistics.fmean if order in ("easy", "hard") else statistics.pstdev
    sign = -1 if order in ("easy", "spread") else 1
    tasks = found.tasks()
    ranks = {
        task: (sign * measure([item.reward for item in some]), hashed(task)[:8])
        for task, some in tasks.items()
    }
    ranked = sorted(tasks, key=ranks.__getitem__)
    return replace(found, logged=[item for task in ranked for item in tasks[task]])
