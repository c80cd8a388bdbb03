"""Select the conversations that train: judged ones of split train, each with one reward.

Conversations in which another speaker gave the answer away, left its role or said nothing are
dropped by default: their reward does not measure what the policy did.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench.errors import TrainError
from convbench.judges.controls import control_results, unfit_reasons
from convbench.learn.log import LARGE, LogFiles, LoggedConversation, sort_conversations
from convbench.learn.rewards import (
    UNREWARDED,
    JudgeRewards,
    Rewards,
    check_one_version,
    choose_judge,
)
from convbench.schema.recipe import Data, FlaggedRule, Unit
from convbench.store.index import ConversationRow
from convbench.store.run import Run
from convbench.views import policy_turns

FORM_FINDINGS = ("words", "no-question", "repeats", "answers", "code")
"""Findings that drop no conversation, whoever spoke: form is for the judge to score. Of convbench's
own checks `leak`, `role` and `empty` count, and so does what a user's own check finds."""


def relevant_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of a conversation that count for `data.flagged`: all but those of form."""
    return tuple(flag for flag in flags if flag.rpartition(":")[2] not in FORM_FINDINGS)


@dataclass
class FlaggedSummary:
    """Counts of the flagged conversations among those that would train, and their treatment."""

    rule: FlaggedRule
    """How they are treated: `drop` or `keep`."""
    conversations: int = 0
    """Number of flagged conversations."""
    findings: Counter[str] = field(default_factory=Counter)
    """Conversations by finding; a conversation may have several."""

    def add_flags(self, flags: tuple[str, ...]) -> None:
        """Count one conversation with these flags."""
        self.conversations += 1
        self.findings.update(set(flags))

    def describe(self) -> Iterator[str]:
        """Yield one line on the flagged conversations, or nothing if there are none."""
        if not self.conversations:
            return
        done = "dropped" if self.rule == "drop" else "kept"
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.items()))
        opposite = "drop" if self.rule == "keep" else "keep"
        yield (
            f"flagged by fidelity checks: {self.conversations} conversations {done} ({counts}); "
            f"to {opposite} them: --set data.flagged={opposite}"
        )

    def record(self) -> dict[str, object]:
        """Return `rule`, `conversations` and `findings` (conversations by finding), as
        `training.json` holds them."""
        return {
            "rule": self.rule,
            "conversations": self.conversations,
            "findings": dict(sorted(self.findings.items())),
        }


@dataclass(frozen=True)
class Selection:
    """The logged conversations that train, and counts of those left out, by reason."""

    run: Run
    judge: str
    logged: Sequence[LoggedConversation]
    skipped: dict[str, int] = field(default_factory=dict)
    flagged: FlaggedSummary = field(default_factory=lambda: FlaggedSummary("drop"))
    """Conversations among them that the fidelity checks flagged."""
    unrewarded: Sequence[LoggedConversation] = ()
    """Conversations without a reward that are learnt all the same; their reward reads 0."""
    parts: tuple[Selection, ...] = ()
    """The selection of each run, in their order; empty for a single run."""
    versions: frozenset[str] = frozenset()
    """Fingerprints of the judge in verdicts that did not fail."""
    fingerprints: frozenset[str] = frozenset()
    """Fingerprints of the judge in all verdicts, failed ones included."""

    def run_of(self, item: LoggedConversation) -> Run:
        """Return the run that holds a conversation."""
        return item.run or self.run

    def by_task(self) -> Mapping[str, Sequence[LoggedConversation]]:
        """Return the conversations of each task, that is question, by its name; tasks and
        conversations in the order of the log."""
        grouped: dict[str, list[LoggedConversation]] = {}
        for item in self.logged:
            grouped.setdefault(item.task, []).append(item)
        return grouped

    def describe(self, metric: str) -> Iterator[str]:
        """Yield lines that say how many conversations train, and how many were left out and why."""
        yield (
            f"{len(self.logged)} conversations about {len(self.by_task())} questions, "
            f"judge {self.judge}, metric {metric}"
        )
        if self.unrewarded:
            yield f"{len(self.unrewarded)} without a reward, trained by likelihood alone"
        for part in self.parts:
            yield f"  {part.run.path}: {part.describe_run()}"
        for reason, count in self.skipped.items():
            yield f"omitted: {count} {reason}"
        yield from self.unfit_reasons()
        yield from self.flagged.describe()

    def describe_run(self) -> str:
        """Return a line on this run, for a selection of several runs."""
        unrewarded = f" and {len(self.unrewarded)} without a reward" if self.unrewarded else ""
        judge = f", judge {self.judge}" if self.judge else ""
        return f"{len(self.logged)} conversations{unrewarded}, policy {policy_of(self.run)}{judge}"

    def record(self) -> dict[str, Any]:
        """Return the source of the conversations as `training.json` holds it, without paths.

        Keys are `run` (id), `task`, `protocol`, `policy`, `judge`, and the counts `conversations`
        and `unrewarded`.
        """
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

    def unfit_reasons(self) -> Iterator[str]:
        """Yield the reasons why the judge should not be learnt from, by its controls."""
        for part in self.parts:
            yield from part.unfit_reasons()
        if self.parts:
            return
        for mark in sorted(self.fingerprints):
            yield from unfit_reasons(control_results(self.run, self.judge, mark), self.judge)


def select(run: Run, data: Data, large: int = LARGE) -> Selection:
    """Return the train conversations of the run's own policy with one judge's reward.

    By question, then sample. With `data.rows` whole tasks are taken, so that rows come nearest to
    it (maybe more). Others are counted as skipped by reason. Raise TrainError if the run is not
    judged, has several judges and none is named or one in two versions, has fewer rows than
    `data.rows`, if nothing is left, or if all of several rewards are equal.
    """
    selection = collect_conversations(run, data, large=large)
    logged, skipped = selection.logged, Counter(selection.skipped)
    if data.rows is not None:
        logged = limit_rows(selection, data.rows, data.unit)
        skipped["beyond data.rows"] = len(selection.logged) - len(logged)
    check_selection(selection.run, selection.judge, logged, skipped)
    return replace(selection, logged=logged, skipped=dict(skipped))


def collect_conversations(
    run: Run, data: Data, split: str = "train", large: int = LARGE
) -> Selection:
    """Return the same as `select`, but all rows, and unchecked: it may be empty, and all rewards
    may be equal.

    With `data.unrewarded: sft` a run without verdicts gives its unrewarded conversations. `split`
    may be another split, or `all`. Conversations of a run with more than `large` bytes of them are
    read each time they are used. Raise TrainError if the judge is unclear, or of two versions.
    """
    takes_unrewarded = data.unrewarded == "sft"
    rewards = JudgeRewards(run, data.judge, data)
    judge = choose_judge(run, rewards.judges, data.judge, needed=not takes_unrewarded)
    check_one_version(run, judge, rewards.versions)
    skipped: Counter[str] = Counter()
    flagged, files = FlaggedSummary(data.flagged), LogFiles(run, large)
    logged, unrewarded = list[LoggedConversation](), list[LoggedConversation]()
    for row, question in run.joined_rows():
        outcome = _rewards_or_reason(run, row, question.split, rewards, split=split)
        is_unrewarded = takes_unrewarded and outcome in UNREWARDED
        if is_unrewarded:
            outcome = 0.0, ()
        outcome = _unless_flagged(run, row, outcome, flagged)
        if isinstance(outcome, str):
            skipped[outcome] += 1
        else:
            (unrewarded if is_unrewarded else logged).append(files.with_rewards(row, *outcome))
    return Selection(
        run,
        judge,
        sort_conversations(logged),
        dict(skipped),
        flagged,
        sort_conversations(unrewarded),
        versions=frozenset(rewards.versions),
        fingerprints=rewards.fingerprints,
    )


def limit_rows(selection: Selection, rows: int, unit: Unit) -> Sequence[LoggedConversation]:
    """Return the conversations of so many tasks that their rows (conversations, or policy turns)
    add up nearest to `rows`.

    It may be more or fewer, since tasks are taken whole, at least one; the conversations keep their
    order. Tasks are taken in the order of a hash of their names, so that subsets are nested. Raise
    TrainError if there are fewer rows than that.
    """
    row_counts: Counter[str] = Counter()
    logged = selection.logged
    for item in logged:
        row_counts[item.task] += (
            1
            if unit == "conversation"
            else len(policy_turns(selection.run_of(item).manifest.protocol, item.conversation))
        )
    if row_counts.total() < rows:
        raise TrainError(
            f"data.rows: found {row_counts.total()} rows (one per {unit}) in "
            f"{selection.run.path}; expected "
            f"at least {rows}; build more questions, or take all with --set data.rows=null"
        )
    order = sorted(row_counts, key=name_hash)
    sums = list(itertools.accumulate(row_counts[task] for task in order))
    best = min(range(len(sums)), key=lambda i: abs(sums[i] - rows))
    chosen = set(order[: best + 1])
    return [item for item in logged if item.task in chosen]


def name_hash(name: str) -> bytes:
    """Return the SHA-256 of a name, for an order that depends on the names alone."""
    return hashlib.sha256(name.encode()).digest()


def policy_of(run: Run) -> str:
    """Return the model that spoke as the policy in a run; of a folder only its name."""
    model = run.manifest.policy_member.model
    kind, colon, path = model.rpartition(":")
    return f"{kind}{colon}{Path(path).name}" if Path(path).is_absolute() else model


def _rewards_or_reason(
    run: Run,
    row: ConversationRow,
    own_split: str,
    rewards: JudgeRewards,
    *,
    split: str = "train",
) -> str | Rewards:
    """Return the rewards of a conversation, or as text the reason why it does not train."""
    specs = run.manifest.fingerprints.get("specs")
    if split not in ("all", own_split):
        return f"not in split {split}"
    if specs and row.specs and row.specs != specs:
        return "of another policy"
    if not row.ended:
        return "failed"
    return rewards.rewards_of(row)


def _unless_flagged(
    run: Run, row: ConversationRow, outcome: str | Rewards, flagged: FlaggedSummary
) -> str | Rewards:
    """Return the rewards, or "flagged" for a conversation that `data.flagged` drops; a reason is
    returned as it is."""
    if isinstance(outcome, str):
        return outcome
    flags = relevant_flags(row.flags)
    if flags:
        flagged.add_flags(flags)
    return "flagged" if flags and flagged.rule == "drop" else outcome


def check_selection(
    run: Run, judge: str, logged: Sequence[LoggedConversation], skipped: Counter[str]
) -> None:
    """Raise TrainError if no conversation is left, or if several are and all their rewards are
    equal."""
    if not logged:
        why = (
            ", ".join(f"{count} {reason}" for reason, count in skipped.items())
            or "the run is empty"
        )
        hint = "; --set data.flagged=keep takes the flagged ones" if skipped["flagged"] else ""
        raise TrainError(f"{run.path}: no conversation is left to train on ({why}){hint}")
    rewards = ((item.reward, item.turns) for item in logged)
    first = next(rewards)
    if len(logged) > 1 and all(other == first for other in rewards):
        raise TrainError(
            f"{run.path}: all {len(logged)} rewards of judge {judge!r} are "
            f"{logged[0].reward:g}: nothing to learn from; expected rewards that differ"
        )
