"""Merge several runs into one log: conversations joined, rewards aligned, questions ordered."""

from __future__ import annotations

import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from convbench.errors import TrainError, UsageError
from convbench.learn.log import LARGE, LoggedConversation
from convbench.learn.pairs import Pairs
from convbench.learn.select import (
    FlaggedSummary,
    Selection,
    check_selection,
    collect_conversations,
    limit_rows,
    name_hash,
    select,
)
from convbench.learn.weights import Weighted
from convbench.schema import fingerprint
from convbench.schema.recipe import Align, Data, Order
from convbench.store.run import Run


def merge_runs(runs: Sequence[Run], data: Data, large: int = LARGE) -> Selection:
    """Return the conversations of all runs as one log, rewards aligned (`data.align`), questions in
    the order of `data.order`.

    Of several runs, conversations of one question under one protocol are one group, whichever run
    holds them. Raise TrainError as `select` does, and if `data.mix` or `data.judges` do not have
    one value a run, or if rewards of several judges are not aligned; UsageError if a run comes
    twice.
    """
    _check_one_each(runs, data)
    if len(runs) == 1:
        selection = select(runs[0], data, large)
    else:
        numbered_runs = enumerate(runs)
        selection = _join_selections(
            [
                collect_conversations(run, _settings_for(data, position), large=large)
                for position, run in numbered_runs
            ]
        )
        _check_comparable(selection, data.align)
        if data.rows is not None:
            logged = limit_rows(selection, data.rows, data.unit)
            beyond = {"beyond data.rows": len(selection.logged) - len(logged)}
            selection = replace(selection, logged=logged, skipped=selection.skipped | beyond)
        check_selection(
            selection.run, selection.judge, selection.logged, Counter(selection.skipped)
        )
    if data.align != "none":
        selection = replace(selection, logged=_align_rewards(selection, data.align))
    return _order_questions(selection, data.order)


def _check_one_each(runs: Sequence[Run], data: Data) -> None:
    """Refuse a run that comes twice, and lists that do not have one value a run."""
    ids = Counter(run.manifest.id for run in runs)
    twice = next((run for run in runs if ids[run.manifest.id] > 1), None)
    if twice is not None:
        raise UsageError(
            f"--run {twice.path}: found it twice; expected each run once; to count it "
            "twice: --set data.mix=[2,1]"
        )
    for name, settings in (("mix", data.mix), ("judges", data.judges)):
        if settings and len(settings) != len(runs):
            raise TrainError(
                f"data.{name}: found {len(settings)} for {len(runs)} run(s); expected one for each "
                "--run, in their order"
            )


def _settings_for(data: Data, position: int) -> Data:
    """Return the data settings of the run at a position."""
    judge = data.judges[position] if data.judges else data.judge
    return data.model_copy(update={"judge": judge})


def _join_selections(parts: Sequence[Selection]) -> Selection:
    """Return the selections as one; each conversation has its run and its question's group."""
    flagged = FlaggedSummary(parts[0].flagged.rule)
    skipped: Counter[str] = Counter()
    for part in parts:
        skipped.update(part.skipped)
        flagged.conversations += part.flagged.conversations
        flagged.findings.update(part.flagged.findings)
    names = _QuestionNames()
    logged, unrewarded = list[LoggedConversation](), list[LoggedConversation]()
    for part in parts:
        logged += names.name_questions(part.run, part.logged)
        unrewarded += names.name_questions(part.run, part.unrewarded)
    judges = " + ".join(dict.fromkeys(part.judge for part in parts if part.judge))
    return Selection(parts[0].run, judges, logged, dict(skipped), flagged, unrewarded, tuple(parts))


class _QuestionNames:
    """Names of questions across runs: the same for one question under one protocol."""

    def __init__(self) -> None:
        self.marks: dict[str, list[str]] = {}

    def name_questions(
        self, run: Run, items: Iterable[LoggedConversation]
    ) -> Iterator[LoggedConversation]:
        """Yield the conversations with their run and the name of their question."""
        manifest = run.manifest
        protocol_mark = fingerprint(manifest.task.name, manifest.protocol, manifest.mode)
        for name, logged_items in groupby(items, key=lambda item: item.example_id):
            group = ""
            for item in logged_items:
                group = group or self._group_name(name, fingerprint(protocol_mark, item.example))
                yield replace(item, run=run, group=group)

    def _group_name(self, name: str, mark: str) -> str:
        known = self.marks.setdefault(name, [])
        if mark not in known:
            known.append(mark)
        number = known.index(mark) + 1
        return name if number == 1 else f"{name}#{number}"


def _check_comparable(selection: Selection, align: Align) -> None:
    """Raise TrainError for rewards of several judges without `align`."""
    versions = {(part.judge, v) for part in selection.parts if part.logged for v in part.versions}
    if len(versions) > 1 and align == "none":
        judges = ", ".join(
            f"{part.run.path.name}: {part.judge}" for part in selection.parts if part.judge
        )
        raise TrainError(
            f"found rewards of {len(versions)} judges or versions of one ({judges}), whose scales "
            "may differ; expected one, or --set data.align=standard, range or rank"
        )


def _align_rewards(selection: Selection, align: Align) -> Sequence[LoggedConversation]:
    """Return the conversations with aligned rewards, mapped separately for each task and judge;
    rewards of turns are mapped by the values of turns."""
    judges = {part.run.manifest.id: part.judge for part in selection.parts}

    def scale_of(item: LoggedConversation) -> tuple[str, str]:
        manifest = selection.run_of(item).manifest
        return manifest.task.name, judges.get(manifest.id, selection.judge)

    rewards: dict[tuple[str, str], array[float]] = {}
    turns: dict[tuple[str, str], array[float]] = {}
    for item in selection.logged:
        rewards.setdefault(scale_of(item), array("d")).append(item.reward)
        turns.setdefault(scale_of(item), array("d")).extend(item.turns)
    maps = {name: make_aligner(values, align) for name, values in rewards.items()}
    inner = {name: make_aligner(values, align) for name, values in turns.items() if values}

    def align_item(item: LoggedConversation) -> LoggedConversation:
        name = scale_of(item)
        own = tuple(inner[name](value) for value in item.turns)
        return replace(item, reward=maps[name](item.reward), turns=own)

    return [align_item(item) for item in selection.logged]


def make_aligner(values: Sequence[float], align: Align) -> Callable[[float], float]:
    """Return the function that maps a reward among these values to the common scale.

    `standard`: (value - mean) / deviation, over n; `range`: 0 for the lowest to 1 for the highest;
    `rank`: the same of ranks, ties at their mean. If all values are equal, it returns 0 for
    `standard`, 0.5 for `range` and `rank`. Raise an error for empty values.
    """
    if align == "rank":
        ordered, last_rank = sorted(values), max(len(values) - 1, 1)
        flat = ordered[0] == ordered[-1]
        return lambda value: (
            0.5
            if flat
            else (bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 / last_rank
        )
    if align == "range":
        low, width = min(values), max(values) - min(values)
        return (lambda value: (value - low) / width) if width else lambda value: 0.5
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    return (lambda value: (value - mean) / std) if std > 1e-12 else lambda value: 0.0


def _order_questions(selection: Selection, order: Order) -> Selection:
    """Return the log with its questions in the order of the curriculum."""
    if order == "shuffled":
        return selection
    measure = statistics.fmean if order in ("easy", "hard") else statistics.pstdev
    sign = -1 if order in ("easy", "spread") else 1
    tasks = selection.by_task()
    ranks = {
        task: (sign * measure([item.reward for item in group]), name_hash(task)[:8])
        for task, group in tasks.items()
    }
    ranked = sorted(tasks, key=ranks.__getitem__)
    return replace(selection, logged=[item for task in ranked for item in tasks[task]])


T = TypeVar("T")


def apply_mix(trainer_data: object, data: Data, own_loss: bool) -> object:
    """Return a trainer's data with `data.mix` and `data.unrewarded` applied; a new object unless
    nothing changes.

    Conversations without a reward follow the weighted ones, with weight `data.unrewarded_weight`;
    then items are repeated by their run's share. `own_loss`: the trainer's loss is not that of
    weighted rows. Raise TrainError if the trainer cannot learn from such data, or if nothing is
    left.
    """
    if isinstance(trainer_data, Weighted):
        return _mix_conversations(_with_unrewarded(trainer_data, data, own_loss), data.mix)
    if data.unrewarded != "drop":
        raise TrainError(
            "data.unrewarded: found sft, and pairs need rewards; expected drop, or a learner of "
            "weighted rows, as swift"
        )
    if not data.mix:
        return trainer_data
    if not isinstance(trainer_data, Pairs):
        raise TrainError("data.mix: this learner does not support it; expected none")
    places = run_positions(trainer_data.selection)
    items = repeat_by_share(
        trainer_data.items, data.mix, lambda pair: places[pair.run], lambda pair: pair.task
    )
    return replace(trainer_data, items=tuple(items))


def _with_unrewarded(weighted: Weighted, data: Data, own_loss: bool) -> Weighted:
    """Return the weighted conversations, followed by those without a reward."""
    unrewarded = weighted.selection.unrewarded
    if not unrewarded:
        return weighted
    if own_loss:
        raise TrainError(
            f"data.unrewarded: found sft for {len(unrewarded)} conversations, which the "
            "learner's own loss cannot use; expected drop, or a learner of weighted rows, such as "
            "swift"
        )
    return replace(
        weighted,
        items=(*weighted.items, *((item, data.unrewarded_weight) for item in unrewarded)),
        unrewarded_ids=frozenset(item.conversation_id for item in unrewarded),
    )


def _mix_conversations(weighted: Weighted, mix: Sequence[float]) -> Weighted:
    if not mix:
        return weighted
    selection = weighted.selection
    places = run_positions(selection)
    items = repeat_by_share(
        weighted.items,
        mix,
        lambda item: places[selection.run_of(item[0]).manifest.id],
        lambda item: _task_of(item[0]),
    )
    return replace(weighted, items=tuple(items))


def _task_of(item: LoggedConversation) -> str:
    return item.task


def run_positions(selection: Selection) -> dict[str, int]:
    """Return each run's position in the log, from 0, by its id."""
    runs = [part.run for part in selection.parts] or [selection.run]
    return {run.manifest.id: position for position, run in enumerate(runs)}


def repeat_by_share(
    items: Sequence[T],
    mix: Sequence[float],
    position: Callable[[T], int],
    task: Callable[[T], str],
) -> list[T]:
    """Return every item repeated by its run's share, in order, copies next to each other.

    With 2.5 the items of each question come twice, and those of half of the questions once more, by
    a hash of their names; with less than 1 some questions are left out. Raise TrainError if none is
    left.
    """
    copies = []
    for item in items:
        share = mix[position(item)]
        is_extra = int.from_bytes(name_hash(task(item))[:8]) / 2**64 < share % 1
        copies += [item] * (int(share) + is_extra)
    if not copies:
        raise TrainError("data.mix: nothing is left to train on; raise a share")
    return copies
