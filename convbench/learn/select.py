"""Select the logged conversations that train: ended ones of split train, each with its reward."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convbench import rewards
from convbench.errors import TrainError
from convbench.judges.controls import control_results, unfit_reasons
from convbench.schema import Conversation, Example, JudgeSpec, ProtocolSpec, turn_scores
from convbench.schema.judge import Verdict
from convbench.schema.recipe import Data
from convbench.store.run import Run
from convbench.views import asking_turns, own_turns

FORM_FINDINGS = ("words", "no-question", "repeats", "answers", "code")
"""Findings that drop no conversation, whoever spoke: form is for the judge to score. Of convbench's
own checks `leak`, `role` and `empty` count, and so does what a user's own check finds."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One conversation of the logged dataset D = {(x, tau, r)} (Mukherjee et al. 2025, Alg. 1)."""

    run: Run
    conversation: Conversation
    example: Example
    task: str
    """Name of the question, the context x that several conversations share."""
    reward: float
    turns: tuple[float, ...] = ()
    """Rewards of the policy's own turns; empty if the judge did not score turns."""

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.conversation.conversation_id

    @property
    def day(self) -> str:
        """Its ISO date, for templates that print it."""
        return self.conversation.ended[:10]

    @property
    def protocol(self) -> ProtocolSpec:
        """The protocol of its run."""
        return self.run.manifest.protocol


@dataclass(frozen=True)
class Selection:
    """The logged conversations that train, and what was left out."""

    runs: tuple[Run, ...]
    judge: str
    logged: Sequence[Logged]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Counts of other conversations, by reason."""
    findings: Mapping[str, int] = field(default_factory=dict)
    """Flagged conversations by finding of the fidelity checks, whether dropped or kept."""
    flagged: int = 0
    """Number of flagged conversations."""
    fingerprints: frozenset[str] = frozenset()
    """Fingerprints of the judge in all of its verdicts."""

    def by_task(self) -> dict[str, list[Logged]]:
        """Return the conversations of each task, that is question, by its name, in the order of the
        log."""
        grouped: dict[str, list[Logged]] = {}
        for item in self.logged:
            grouped.setdefault(item.task, []).append(item)
        return grouped

    def notes(self, data: Data) -> Iterator[str]:
        """Yield lines on flagged conversations, and on why the judge should not be learnt from."""
        if self.flagged:
            counts = ", ".join(f"{name} {count}" for name, count in sorted(self.findings.items()))
            done, other = ("kept", "drop") if data.flagged == "keep" else ("dropped", "keep")
            yield (
                f"flagged by fidelity checks: {self.flagged} conversations {done} ({counts}); to "
                f"{other} them: --set data.flagged={other}"
            )
        for run in self.runs:
            for mark in sorted(self.fingerprints):
                yield from unfit_reasons(control_results(run, self.judge, mark), self.judge)


def select(runs: Sequence[Run], data: Data) -> Selection:
    """Return the train conversations of the runs' own policies with one judge's reward, as one log.

    They are ordered by question, then sample; conversations of one question are one task whichever
    run holds them. With `data.rows` whole tasks are taken, so that rows come nearest to it. Raise
    TrainError if a run is not judged, has several judges and none is named, or one in two versions;
    if `data.mix` does not fit the runs; if nothing is left, or if all of several rewards are equal.
    """
    if len({run.manifest.id for run in runs}) < len(runs):
        raise TrainError("--run: found one run twice; to count it twice: --set data.mix=[2,1]")
    if data.mix and len(data.mix) != len(runs):
        raise TrainError(
            f"data.mix: found {len(data.mix)} for {len(runs)} run(s); expected one for each --run, "
            "in their order"
        )
    left_out, findings = Counter[str](), Counter[str]()
    logged: list[Logged] = []
    judges, versions, flagged = dict[str, None](), set[str](), 0
    several = len({run.manifest.task.name for run in runs}) > 1
    for run in runs:
        judge, verdicts = _verdicts_of(run, data.judge)
        judges[judge] = None
        below, specs, before = _below_least(run, data), run.judge_specs(), len(logged)
        for talk in run.conversations():
            example, verdict = run.examples[talk.example_id], verdicts.get(talk.conversation_id)
            reason = _why_left_out(run, talk, example, verdict, below)
            flags = relevant_flags(talk.flags) if reason is None else ()
            flagged += bool(flags)
            findings.update(set(flags))
            reason = "flagged" if flags and data.flagged == "drop" else reason
            if reason is not None or verdict is None:
                left_out[str(reason)] += 1
                continue
            spec = specs.get(verdict.fingerprint)
            reward, turns = _rewards_of(verdict, data.metric, spec, run.manifest.protocol, talk)
            task = f"{run.manifest.task.name}/{example.example_id}" if several else talk.example_id
            logged.append(Logged(run, talk, example, task, reward, turns))
        if len(logged) > before:
            versions |= {verdict.fingerprint for verdict in verdicts.values()}
    if len(judges) > 1 or (len(runs) > 1 and len(versions) > 1):
        raise TrainError(
            f"found rewards of {max(len(judges), len(versions))} judges or versions of one "
            f"({', '.join(judges)}), whose scales may differ; expected one; judge all runs by the "
            "same, or rescale the rewards that are imported"
        )
    # The order in which they ended depends on the machine; a training depends on that of rows.
    place = {run.manifest.id: number for number, run in enumerate(runs)}
    logged.sort(
        key=lambda item: (
            place[item.run.manifest.id],
            item.example.example_id,
            item.conversation.sample,
            item.conversation.key,
        )
    )
    (judge,) = judges
    marks = frozenset(versions)
    selection = Selection(tuple(runs), judge, logged, left_out, findings, flagged, marks)
    if data.rows is not None:
        selection = _limit_rows(selection, data.rows, data)
    _check_left(selection)
    return selection


def relevant_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of a conversation that count for `data.flagged`: all but those of form."""
    return tuple(flag for flag in flags if flag.rpartition(":")[2] not in FORM_FINDINGS)


def name_hash(name: str) -> bytes:
    """Return the SHA-256 of a name, for an order that depends on the names alone."""
    return hashlib.sha256(name.encode()).digest()


def repeat_by_share(
    items: Sequence[Any], logged: Iterable[Logged], selection: Selection, data: Data
) -> list[Any]:
    """Return every item as often as `data.mix` says of its run, in order, copies next to each
    other; `logged` are the conversations that they are of.

    With 2.5 the items of each question come twice, and those of half of the questions once more, by
    a hash of their names; with less than 1 some questions are left out.
    """
    if not data.mix:
        return list(items)
    ids = (run.manifest.id for run in selection.runs)
    shares = dict(zip(ids, data.mix, strict=True))
    copies: list[Any] = []
    for item, talk in zip(items, logged, strict=True):
        share = shares[talk.run.manifest.id]
        is_extra = int.from_bytes(name_hash(talk.task)[:8]) / 2**64 < share % 1
        copies += [item] * (int(share) + is_extra)
    return copies


def _verdicts_of(run: Run, name: str | None) -> tuple[str, dict[str, Verdict]]:
    """Return (the judge whose verdicts count, its newest verdict of each conversation by id)."""
    reviewers = run.reviewer_fingerprints()
    by_judge: dict[str, dict[str, Verdict]] = {}
    for verdict in run.verdicts():
        if verdict.fingerprint not in reviewers:
            by_judge.setdefault(verdict.judge, {})[verdict.conversation_id] = verdict
    known = ", ".join(sorted(by_judge))
    if not by_judge:
        raise TrainError(
            f"{run.path}: found no verdicts; expected a judged run; run: "
            f"convbench judge --run {run.path}"
        )
    if name is None and len(by_judge) > 1:
        raise TrainError(
            f"{run.path}: found verdicts of {len(by_judge)} judges ({known}); expected one to be "
            "named; add --judge NAME"
        )
    if name is not None and name not in by_judge:
        raise TrainError(
            f"{run.path}: found no verdicts of judge {name!r}; expected one of {known}"
        )
    judge = name or next(iter(by_judge))
    verdicts = by_judge[judge]
    versions = {verdict.fingerprint for verdict in verdicts.values() if verdict.scored}
    if len(versions) > 1:
        raise TrainError(
            f"{run.path}: verdicts of judge {judge!r} come from {len(versions)} versions of its "
            f"rubric or model; expected one; judge all again: convbench judge --judge {judge}"
        )
    return judge, verdicts


def _below_least(run: Run, data: Data) -> set[str]:
    """Return the ids of the conversations of which a judge's scores are below what `data.least`
    asks of it."""
    below = set()
    for verdict in run.verdicts() if data.least else ():
        names = {verdict.judge, verdict.judge.partition("@")[0], "*"} & data.least.keys()
        asked = [item for name in names for item in data.least[name].items()]
        if verdict.scored and any(verdict.scores.get(name, low) < low for name, low in asked):
            below.add(verdict.conversation_id)
    return below


def _why_left_out(
    run: Run,
    conversation: Conversation,
    example: Example,
    verdict: Verdict | None,
    below: Collection[str],
) -> str | None:
    """Return why a conversation does not train, or None if it does."""
    specs = run.manifest.fingerprints.get("specs")
    if example.split != "train":
        return "not in split train"
    if specs and conversation.specs and conversation.specs != specs:
        return "of another policy"
    if conversation.failure is not None:
        return "failed"
    if verdict is None:
        return "not judged"
    if not verdict.scored:
        return "judge failed"
    if verdict.conversation_id in below:
        return "below data.least"
    if not own_turns(run.manifest.protocol, conversation):
        return "without a turn of the policy"
    return None


def _rewards_of(
    verdict: Verdict,
    metric: str,
    spec: JudgeSpec | None,
    protocol: ProtocolSpec,
    conversation: Conversation,
) -> tuple[float, tuple[float, ...]]:
    """Return (the reward, those of the policy's turns). Another metric than `reward` is scaled and
    discounted as the judge's reward is; taken as it is if the run does not hold the judge's
    spec."""
    turns = turn_scores(verdict)
    if metric == "reward":
        if verdict.reward is None:
            raise TrainError(f"judge {verdict.judge!r}: no reward of {verdict.conversation_id}")
        return verdict.reward, tuple(turn.reward for turn in turns)
    if metric not in verdict.scores or any(metric not in turn.scores for turn in turns):
        raise TrainError(
            f"judge {verdict.judge!r} gives no score {metric!r}; expected `reward` or one of: "
            f"{', '.join(sorted(verdict.scores))}"
        )
    if spec is None:
        return verdict.scores[metric], tuple(turn.scores[metric] for turn in turns)
    rule = spec.reward.model_copy(update={"metric": metric})
    questions = len(asking_turns(protocol, conversation))
    of_turns = tuple(rewards.turn_reward(rule, turn.scores) for turn in turns)
    if spec.per == "turn":
        scores = [turn.scores for turn in turns]
        return rewards.turns_reward(rule, protocol, scores, questions), of_turns
    return rewards.conversation_reward(rule, protocol, verdict.scores, questions), of_turns


def _limit_rows(selection: Selection, rows: int, data: Data) -> Selection:
    """Return the conversations of so many tasks that their rows add up nearest to `rows`; tasks in
    the order of a hash of their names, so that subsets are nested."""
    counts: Counter[str] = Counter()
    for item in selection.logged:
        own = own_turns(item.protocol, item.conversation)
        counts[item.task] += 1 if data.unit == "conversation" else len(own)
    if counts.total() < rows:
        raise TrainError(
            f"data.rows: found {counts.total()} rows (one per {data.unit}) in "
            f"{selection.runs[0].path}; expected at least {rows}; build more questions, or take "
            "all with --set data.rows=null"
        )
    order = sorted(counts, key=name_hash)
    sums = list(itertools.accumulate(counts[task] for task in order))
    best = min(range(len(sums)), key=lambda i: abs(sums[i] - rows))
    chosen = set(order[: best + 1])
    logged = [item for item in selection.logged if item.task in chosen]
    beyond = {"beyond data.rows": len(selection.logged) - len(logged)}
    return replace(selection, logged=logged, left_out={**selection.left_out, **beyond})


def _check_left(selection: Selection) -> None:
    path, logged = selection.runs[0].path, selection.logged
    if not logged:
        reasons = (f"{count} {reason}" for reason, count in selection.left_out.items())
        why = ", ".join(reasons) or "the run is empty"
        hint = "; --set data.flagged=keep takes the flagged ones"
        hint = hint if selection.left_out.get("flagged") else ""
        raise TrainError(f"{path}: no conversation is left to train on ({why}){hint}")
    if len(logged) > 1 and len({(item.reward, item.turns) for item in logged}) == 1:
        raise TrainError(
            f"{path}: all {len(logged)} rewards of judge {selection.judge!r} are "
            f"{logged[0].reward:g}: nothing to learn from; expected rewards that differ"
        )
