"""From a run to what is learnt from: judged conversations of split train, with one reward each."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench import rewards
from convbench.errors import TrainError
from convbench.judge.controls import tried, unfit
from convbench.learn.flagged import Flagged, findings
from convbench.schema import Conversation, Example, Verdict, turn_scores
from convbench.schema.recipe import Data, Unit
from convbench.store.run import Run
from convbench.views import asking_turns, policy_turns

UNREWARDED = ("not judged", "judge failed")
"""Why a conversation that could train has no reward."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One conversation of the logged dataset D = {(x, tau, r)} (Mukherjee et al. 2025, Alg. 1)."""

    conversation: Conversation
    example: Example
    reward: float
    turns: tuple[float, ...] = ()
    """Rewards of the policy's own turns, where their judge scored turns."""
    run: Run | None = None
    """The run that holds it, where a log has several."""
    group: str = ""
    """Name of the question where a log has several runs; else its id."""

    @property
    def task(self) -> str:
        """The context x: all conversations about one question share it."""
        return self.group or self.example.example_id


@dataclass(frozen=True)
class Selection:
    """The logged conversations that train, and how many were left out for which reason."""

    run: Run
    judge: str
    logged: tuple[Logged, ...]
    skipped: dict[str, int] = field(default_factory=dict)
    flagged: Flagged = field(default_factory=lambda: Flagged("drop"))
    """What the fidelity checks flagged among them."""
    unrewarded: tuple[Logged, ...] = ()
    """Conversations without a reward that are to be learnt all the same; theirs reads 0."""
    parts: tuple[Selection, ...] = ()
    """Of several runs each one's own, in their order; empty where there is one run."""

    def run_of(self, item: Logged) -> Run:
        """Return the run that holds a conversation."""
        return item.run or self.run

    def tasks(self) -> dict[str, list[Logged]]:
        """Conversations by task, in the order of `in_order`."""
        found: dict[str, list[Logged]] = {}
        for item in self.logged:
            found.setdefault(item.task, []).append(item)
        return found

    def describe(self, metric: str) -> Iterator[str]:
        """Yield in words how many conversations train, and how many were left out and why."""
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
        """Return one run of several in words."""
        bare = f" and {len(self.unrewarded)} without a reward" if self.unrewarded else ""
        by = f", judge {self.judge}" if self.judge else ""
        return f"{len(self.logged)} conversations{bare}, policy {policy_of(self.run)}{by}"

    def record(self) -> dict[str, Any]:
        """Return where conversations come from, as `training.json` holds it; no paths."""
        manifest = self.run.manifest
        return {
            "run": manifest.id, "task": manifest.task.name, "protocol": manifest.protocol.name,
            "policy": policy_of(self.run), "judge": self.judge,
            "conversations": len(self.logged), "unrewarded": len(self.unrewarded),
        }  # fmt: skip

    def unfit(self) -> Iterator[str]:
        """Yield why the judge is unfit to be learnt from, where its controls say so."""
        for part in self.parts:
            yield from part.unfit()
        if self.parts:
            return
        marks = {v.fingerprint for v in self.run.verdicts() if v.judge == self.judge}
        for mark in sorted(marks):
            yield from unfit(tried(self.run, self.judge, mark), self.judge)


def select(run: Run, data: Data) -> Selection:
    """Return the train conversations of the run's own policy with one judge's reward.

    Raises TrainError where the run is not judged, several judges are there and none is named,
    verdicts of one judge are of two versions, nothing is left, or all rewards are equal.
    """
    found = collect(run, data)
    logged, skipped = list(found.logged), Counter(found.skipped)
    if data.rows is not None:
        logged = nearest(found, data.rows, data.unit)
        skipped["beyond data.rows"] = len(found.logged) - len(logged)
    check(found.run, found.judge, logged, skipped)
    return replace(found, logged=tuple(logged), skipped=dict(skipped))


def collect(run: Run, data: Data, split: str = "train") -> Selection:
    """Return `select`'s conversations, of which none need be left and all rewards may be equal; a
    run without verdicts has unrewarded ones alone, where these are wanted. `split` may be another,
    or `all`."""
    reviewers = run.reviewers()
    verdicts = [verdict for verdict in run.verdicts() if verdict.fingerprint not in reviewers]
    bare = data.unrewarded == "sft"
    judge = choose_judge(run, verdicts, data.judge) if verdicts or not bare else ""
    by_id = {verdict.conversation_id: verdict for verdict in verdicts if verdict.judge == judge}
    one_version(run, judge, by_id.values())
    skipped: Counter[str] = Counter()
    flagged = Flagged(data.flagged)
    logged: list[Logged] = []
    unrewarded: list[Logged] = []
    for conversation in in_order(run):
        verdict = by_id.get(conversation.conversation_id)
        reason, item = _judged(run, conversation, verdict, data, split=split)
        plain = bare and reason in UNREWARDED
        if plain:
            example = run.examples[conversation.example_id]
            item = Logged(conversation, example, 0.0)
        item = _unless_flagged(run, item, flagged)
        if item is None:
            skipped["flagged" if plain else reason or "flagged"] += 1
        else:
            (unrewarded if plain else logged).append(item)
    return Selection(run, judge, tuple(logged), dict(skipped), flagged, tuple(unrewarded))


def in_order(run: Run) -> list[Conversation]:
    """Return a run's conversations by question and sample: the order in which they ended hangs on
    the machine, and a training's batches on the order of its rows."""
    return sorted(run.conversations(), key=lambda c: (c.example_id, c.sample, c.key))


def nearest(found: Selection, rows: int, unit: Unit) -> list[Logged]:
    """Return the conversations of the tasks whose rows (conversations, or policy turns) add up
    nearest to `rows`.

    Tasks are taken in the order of a hash of their names, so that subsets are nested.
    """
    there: Counter[str] = Counter()
    logged = found.logged
    for item in logged:
        turns = policy_turns(found.run_of(item).manifest.protocol, item.conversation)
        there[item.task] += len(turns) if unit == "turn" else 1
    if there.total() < rows:
        raise TrainError(
            f"data.rows: found {there.total()} rows (one a {unit}) in {found.run.path}; expected "
            f"at least {rows}; build more questions, or take all with --set data.rows=null"
        )
    order = sorted(there, key=hashed)
    sums = list(itertools.accumulate(there[task] for task in order))
    best = min(range(len(sums)), key=lambda i: abs(sums[i] - rows))
    kept = set(order[: best + 1])
    return [item for item in logged if item.task in kept]


def hashed(name: str) -> bytes:
    """Return what names are ordered by where their order must hang on nothing else."""
    return hashlib.sha256(name.encode()).digest()


def policy_of(run: Run) -> str:
    """Return the model that had a run's conversations, of a folder its name alone; "" where the
    log says none."""
    manifest = run.manifest
    member = manifest.cast.get(manifest.protocol.policy)
    model = member.model if member else ""
    kind, colon, place = model.rpartition(":")
    return f"{kind}{colon}{Path(place).name}" if Path(place).is_absolute() else model


def branches(selection: Selection, data: Data) -> Selection:
    """Return the judged branches of a run's conversations, with the reward of the same judge.

    Raises TrainError where there are none, or they were judged by another version.
    """
    parent = selection.run
    if not (parent.branches / "run.json").exists():
        raise TrainError(
            f"{parent.branches}: found no branches; `convbench train` samples and judges them for "
            "pairing.source: resampled"
        )
    run = Run.open(parent.branches)
    judged = {v.conversation_id: v for v in run.verdicts() if v.judge == selection.judge}
    own = [v for v in parent.verdicts() if v.judge == selection.judge]
    one_version(run, selection.judge, [*judged.values(), *own])
    skipped: Counter[str] = Counter()
    flagged = Flagged(data.flagged)
    found = []
    for conversation in in_order(run):
        verdict = judged.get(conversation.conversation_id)
        reason, item = _judged(run, conversation, verdict, data, branch=True)
        item = _unless_flagged(run, item, flagged)
        if item is None:
            skipped[f"branches: {reason or 'flagged'}"] += 1
        else:
            found.append(item)
    if not found:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise TrainError(f"{run.path}: no judged branch is left to pair ({why or 'no branch'})")
    return Selection(run, selection.judge, tuple(found), dict(skipped), flagged)


def choose_judge(run: Run, verdicts: Iterable[Verdict], wanted: str | None) -> str:
    """Return the judge whose verdicts count: the one named, or the only one there is."""
    there = sorted({verdict.judge for verdict in verdicts})
    if not there:
        raise TrainError(
            f"{run.path}: found no verdicts; expected a judged run; run: "
            f"convbench judge --run {run.path}"
        )
    if wanted is None and len(there) > 1:
        raise TrainError(
            f"{run.path}: found verdicts of {len(there)} judges ({', '.join(there)}); expected "
            "one to be named; add --judge NAME"
        )
    if wanted is not None and wanted not in there:
        raise TrainError(
            f"{run.path}: found no verdicts of judge {wanted!r}; there are: {', '.join(there)}"
        )
    return wanted or there[0]


def one_version(run: Run, judge: str, verdicts: Iterable[Verdict]) -> None:
    """Refuse verdicts of two versions of one judge: their rewards are not comparable."""
    versions = {verdict.fingerprint for verdict in verdicts if verdict.failure is None}
    if len(versions) > 1:
        raise TrainError(
            f"{run.path}: verdicts of judge {judge!r} come from {len(versions)} versions of its "
            f"rubric or model; expected one; judge all again: convbench judge --judge {judge}"
        )


def _judged(
    run: Run,
    conversation: Conversation,
    verdict: Verdict | None,
    data: Data,
    *,
    branch: bool = False,
    split: str = "train",
) -> tuple[str, Logged | None]:
    """Return the logged item, or the reason why this conversation does not train."""
    example = run.examples.get(conversation.example_id)
    specs = run.manifest.fingerprints.get("specs")
    if example is None or split not in ("all", example.split):
        return f"not in split {split}", None
    if (conversation.branch is not None) != branch or (
        specs and conversation.specs and conversation.specs != specs
    ):
        return "of another policy or a branch", None
    if conversation.failure is not None:
        return "failed", None
    if verdict is None:
        return "not judged", None
    if verdict.failure is not None:
        return "judge failed", None
    if any(verdict.scores.get(name, value) < value for name, value in data.least.items()):
        return "below data.least", None
    reward = reward_of(run, verdict, data.metric, conversation)
    return "", Logged(conversation, example, reward, _turns_of(run, verdict, data.metric))


def _turns_of(run: Run, verdict: Verdict, metric: str) -> tuple[float, ...]:
    """Return the rewards of the turns, by the metric; TrainError where one lacks it."""
    turns = turn_scores(verdict)
    if metric == "reward":
        return tuple(one.reward for one in turns)
    spec = run.judge_specs().get(verdict.fingerprint) if turns else None
    scale = spec.reward.scale if spec else 1.0
    if any(metric not in one.scores for one in turns):
        raise TrainError(f"judge {verdict.judge!r}: a turn has no score {metric!r}")
    return tuple(one.scores[metric] / scale for one in turns)


def _unless_flagged(run: Run, item: Logged | None, flagged: Flagged) -> Logged | None:
    """Return the item as its flags leave it, None where it is dropped for them."""
    found = findings(run.manifest.protocol, item.conversation) if item else ()
    if item is None or not found:
        return item
    flagged.add(found)
    if flagged.rule == "zero":
        return replace(item, reward=0.0, turns=(0.0,) * len(item.turns))
    return item if flagged.rule == "keep" else None


def reward_of(run: Run, verdict: Verdict, metric: str, conversation: Conversation) -> float:
    """Return the verdict's reward; for another metric, its score scaled and discounted as the
    judge's own reward is, or as it is where the run does not hold the judge's spec."""
    if metric != "reward" and metric not in verdict.scores:
        raise TrainError(
            f"judge {verdict.judge!r} gives no score {metric!r}; expected `reward` or one of: "
            f"{', '.join(sorted(verdict.scores))}"
        )
    if metric != "reward":
        spec = run.judge_specs().get(verdict.fingerprint)
        if spec is None:
            return verdict.scores[metric]
        rule = spec.reward.model_copy(update={"metric": metric})
        protocol = run.manifest.protocol
        questions = len(asking_turns(protocol, conversation))
        if spec.per == "turn":
            turns = [one.scores for one in turn_scores(verdict)]
            return rewards.of_turns(rule, protocol, turns, questions)
        return rewards.reward(rule, protocol, verdict.scores, questions)
    if verdict.reward is None:
        raise TrainError(f"verdict of {verdict.conversation_id} by {verdict.judge!r} has no reward")
    return verdict.reward


def check(run: Run, judge: str, logged: Sequence[Logged], skipped: Counter[str]) -> None:
    """Refuse a log of which nothing is left, or whose rewards are all equal."""
    if not logged:
        why = (
            ", ".join(f"{count} {reason}" for reason, count in skipped.items())
            or "the run is empty"
        )
        kept = "; --set data.flagged=keep takes the flagged ones" if skipped["flagged"] else ""
        raise TrainError(f"{run.path}: no conversation is left to train on ({why}){kept}")
    told = {(item.reward, item.turns) for item in logged}
    if len(told) == 1 and len(logged) > 1:
        raise TrainError(
            f"{run.path}: all {len(logged)} rewards of judge {judge!r} are "
            f"{logged[0].reward:g}; expected some to differ, there is nothing to learn from them"
        )
