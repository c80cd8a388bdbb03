"""Select the conversations that train: judged ones of split train, each with one reward."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench.errors import TrainError
from convbench.judge.controls import tried, unfit
from convbench.learn.flagged import Flagged, findings
from convbench.learn.logged import LARGE, LogFiles, Logged, in_order
from convbench.learn.rewards import UNREWARDED, JudgeRewards, Rewards, choose_judge, one_version
from convbench.schema.recipe import Data, Unit
from convbench.store.index import ConversationRow
from convbench.store.run import Run
from convbench.views import policy_turns


@dataclass(frozen=True)
class Selection:
    """The logged conversations that train, and counts of those left out, by reason."""

    run: Run
    judge: str
    logged: Sequence[Logged]
    skipped: dict[str, int] = field(default_factory=dict)
    flagged: Flagged = field(default_factory=lambda: Flagged("drop"))
    """Conversations among them that the fidelity checks flagged."""
    unrewarded: Sequence[Logged] = ()
    """Conversations without a reward that are learnt all the same; their reward reads 0."""
    parts: tuple[Selection, ...] = ()
    """The selection of each run, in their order; empty for a single run."""
    versions: frozenset[str] = frozenset()
    """Fingerprints of the judge in verdicts that did not fail."""
    fingerprints: frozenset[str] = frozenset()
    """Fingerprints of the judge in all verdicts, failed ones included."""

    def run_of(self, item: Logged) -> Run:
        """Return the run that holds a conversation."""
        return item.run or self.run

    def tasks(self) -> Mapping[str, Sequence[Logged]]:
        """Return the conversations of each task, in their order."""
        found: dict[str, list[Logged]] = {}
        for item in self.logged:
            found.setdefault(item.task, []).append(item)
        return found

    def describe(self, metric: str) -> Iterator[str]:
        """Yield lines that say how many conversations train, and how many were left out and why."""
        yield (
            f"{len(self.logged)} conversations about {len(self.tasks())} questions, "
            f"judge {self.judge}, metric {metric}"
        )
        if self.unrewarded:
            yield f"{len(self.unrewarded)} without a reward, learnt by plain likelihood"
        for part in self.parts:
            yield f"  {part.run.path}: {part.told()}"
        for reason, count in self.skipped.items():
            yield f"left out: {count} {reason}"
        yield from self.unfit()
        yield from self.flagged.describe()

    def told(self) -> str:
        """Return a line on this run, for a selection of several runs."""
        bare = f" and {len(self.unrewarded)} without a reward" if self.unrewarded else ""
        by = f", judge {self.judge}" if self.judge else ""
        return f"{len(self.logged)} conversations{bare}, policy {policy_of(self.run)}{by}"

    def record(self) -> dict[str, Any]:
        """Return the source of the conversations as `training.json` holds it, without paths."""
        manifest = self.run.manifest
        return {
            "run": manifest.id,
            "task": manifest.task.name,
            "protocol": manifest.protocol.name,
            "policy": policy_of(self.run),
            "judge": self.judge,
            "conversations": len(self.logged),
            "unrewarded": len(self.unrewarded),
        }

    def unfit(self) -> Iterator[str]:
        """Yield the reasons why the judge should not be learnt from, by its controls."""
        for part in self.parts:
            yield from part.unfit()
        if self.parts:
            return
        for mark in sorted(self.fingerprints):
            yield from unfit(tried(self.run, self.judge, mark), self.judge)


def select(run: Run, data: Data, large: int = LARGE) -> Selection:
    """Return the train conversations of the run's own policy with one judge's reward.

    Raises TrainError if the run is not judged, if it has several judges and none is named, if
    verdicts of one judge come from two versions, if nothing is left, or if all rewards are equal.
    """
    found = collect(run, data, large=large)
    logged, skipped = found.logged, Counter(found.skipped)
    if data.rows is not None:
        logged = nearest(found, data.rows, data.unit)
        skipped["beyond data.rows"] = len(found.logged) - len(logged)
    check(found.run, found.judge, logged, skipped)
    return replace(found, logged=logged, skipped=dict(skipped))


def collect(run: Run, data: Data, split: str = "train", large: int = LARGE) -> Selection:
    """Return the same as `select` without its last checks: the selection may be empty, and all
    rewards may be equal. With `data.unrewarded: sft` a run without verdicts gives its unrewarded
    conversations. `split` may be another split, or `all`. Conversations of a run with more than
    `large` bytes of them are read each time they are used."""
    bare = data.unrewarded == "sft"
    rewards = JudgeRewards(run, data.judge, data)
    judge = choose_judge(run, rewards.judges, data.judge, needed=not bare)
    one_version(run, judge, rewards.versions)
    skipped: Counter[str] = Counter()
    flagged, files = Flagged(data.flagged), LogFiles(run, large)
    logged, unrewarded = list[Logged](), list[Logged]()
    for row, question in run.joined_rows():
        found = _judged(run, row, question.split, rewards, split=split)
        plain = bare and found in UNREWARDED
        if plain:
            found = 0.0, ()
        found = _unless_flagged(run, row, found, flagged)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            (unrewarded if plain else logged).append(files.item(row, *found))
    return Selection(
        run,
        judge,
        in_order(logged),
        dict(skipped),
        flagged,
        in_order(unrewarded),
        versions=frozenset(rewards.versions),
        fingerprints=rewards.fingerprints,
    )


def nearest(found: Selection, rows: int, unit: Unit) -> Sequence[Logged]:
    """Return the conversations of so many tasks that their rows (conversations, or policy turns)
    add up nearest to `rows`.

    Tasks are taken in the order of a hash of their names, so that subsets are nested. Raises
    TrainError if there are fewer rows than that.
    """
    there: Counter[str] = Counter()
    logged = found.logged
    for item in logged:
        there[item.task] += (
            1
            if unit == "conversation"
            else len(policy_turns(found.run_of(item).manifest.protocol, item.conversation))
        )
    if there.total() < rows:
        raise TrainError(
            f"data.rows: found {there.total()} rows (one per {unit}) in {found.run.path}; expected "
            f"at least {rows}; build more questions, or take all with --set data.rows=null"
        )
    order = sorted(there, key=hashed)
    sums = list(itertools.accumulate(there[task] for task in order))
    best = min(range(len(sums)), key=lambda i: abs(sums[i] - rows))
    kept = set(order[: best + 1])
    return [item for item in logged if item.task in kept]


def hashed(name: str) -> bytes:
    """Return the SHA-256 of a name, for an order that depends on the names alone."""
    return hashlib.sha256(name.encode()).digest()


def policy_of(run: Run) -> str:
    """Return the model that spoke as the policy in a run; of a folder only its name, "" if the log
    names no model."""
    manifest = run.manifest
    member = manifest.cast.get(manifest.protocol.policy)
    model = member.model if member else ""
    kind, colon, place = model.rpartition(":")
    return f"{kind}{colon}{Path(place).name}" if Path(place).is_absolute() else model


def branches(selection: Selection, data: Data) -> Selection:
    """Return the judged branches of a run's conversations, with the reward of the same judge.

    Raises TrainError if there are none, or if another version of the judge scored them.
    """
    parent = selection.run
    if not (parent.branches / "run.json").exists():
        raise TrainError(
            f"{parent.branches}: found no branches; `convbench train` samples and judges them for "
            "pairing.source: resampled"
        )
    run = Run.open(parent.branches)
    rewards, own = (JudgeRewards(one, selection.judge, data) for one in (run, parent))
    one_version(run, selection.judge, rewards.versions | own.versions)
    skipped: Counter[str] = Counter()
    flagged, files = Flagged(data.flagged), LogFiles(run)
    logged: list[Logged] = []
    for row, question in run.joined_rows():
        judged = _judged(run, row, question.split, rewards, branch=True)
        judged = _unless_flagged(run, row, judged, flagged)
        if isinstance(judged, str):
            skipped[f"branches: {judged}"] += 1
        else:
            logged.append(files.item(row, *judged))
    if not logged:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise TrainError(f"{run.path}: no judged branch is left to pair ({why or 'no branch'})")
    return Selection(run, selection.judge, in_order(logged), dict(skipped), flagged)


def _judged(
    run: Run,
    row: ConversationRow,
    own_split: str,
    rewards: JudgeRewards,
    *,
    branch: bool = False,
    split: str = "train",
) -> str | Rewards:
    """Return the rewards of a conversation, or as text the reason why it does not train."""
    specs = run.manifest.fingerprints.get("specs")
    if split not in ("all", own_split):
        return f"not in split {split}"
    if row.is_branch != branch or (specs and row.specs and row.specs != specs):
        return "of another policy or a branch"
    if not row.ended:
        return "failed"
    return rewards.of(row)


def _unless_flagged(
    run: Run, row: ConversationRow, found: str | Rewards, flagged: Flagged
) -> str | Rewards:
    """Return the rewards, or 0 or "flagged" (dropped) for a flagged conversation, by the rule of
    `data.flagged`; a reason is returned as it is."""
    if isinstance(found, str):
        return found
    flags = findings(run.manifest.protocol, row.flags)
    if flags:
        flagged.add(flags)
    if not flags or flagged.rule == "keep":
        return found
    return (0.0, (0.0,) * len(found[1])) if flagged.rule == "zero" else "flagged"


def check(run: Run, judge: str, logged: Sequence[Logged], skipped: Counter[str]) -> None:
    """Raise TrainError if no conversation is left, or if all rewards are equal."""
    if not logged:
        why = (
            ", ".join(f"{count} {reason}" for reason, count in skipped.items())
            or "the run is empty"
        )
        kept = "; --set data.flagged=keep takes the flagged ones" if skipped["flagged"] else ""
        raise TrainError(f"{run.path}: no conversation is left to train on ({why}){kept}")
    told = ((item.reward, item.turns) for item in logged)
    first = next(told)
    if len(logged) > 1 and all(one == first for one in told):
        raise TrainError(
            f"{run.path}: all {len(logged)} rewards of judge {judge!r} are "
            f"{logged[0].reward:g}; expected some to differ, there is nothing to learn from them"
        )
