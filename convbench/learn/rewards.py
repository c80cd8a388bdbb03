"""What one judge gave to a run's conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from convbench import rewards
from convbench.errors import TrainError
from convbench.schema import Conversation, Verdict, turn_scores
from convbench.schema.recipe import Data
from convbench.store.index import ConversationRow, VerdictRow
from convbench.store.places import Records
from convbench.store.run import Run
from convbench.views import asking_turns

UNREWARDED = ("not judged", "judge failed")
"""Why a conversation that could train has no reward."""
Rewards = tuple[float, tuple[float, ...]]
"""A conversation's reward, and those of the policy's own turns where their judge scored turns."""


class StoredVerdict(NamedTuple):
    """Where a verdict lies of which more is asked than its numbers in the index."""

    records: Records[Verdict]
    start: int
    length: int


class JudgeRewards:
    """What the newest verdicts of one judge give, by conversation."""

    def __init__(self, run: Run, judge: str | None, data: Data) -> None:
        """`judge` names one; None is the first that there is."""
        self._run, self._metric, reviewers = run, data.metric, run.reviewers()
        self.judges: set[str] = set()
        """All that there are but those that review the simulated human."""
        self.versions: set[str] = set()
        """Fingerprints of the judge in verdicts that did not fail."""
        fingerprints: dict[str, set[str]] = {}
        self._known: dict[str, str | float | Rewards | StoredVerdict] = {}
        """Why there is no reward, the reward alone, rewards, or where they are to be read."""
        files: dict[Path, Records[Verdict]] = {}
        for row in run.verdict_rows():
            fingerprints.setdefault(row.judge, set()).add(row.fingerprint)
            if row.fingerprint in reviewers:
                continue
            self.judges.add(row.judge)
            judge = row.judge if judge is None else judge
            if row.judge != judge:
                continue
            if row.scored:
                self.versions.add(row.fingerprint)
            name, known = row.conversation_id, _rewards_in_row(row, data)
            if known is not None:
                self._known[name] = known
                continue
            if row.path not in files:
                files[row.path] = Records(row.path, Verdict)
            self._known[name] = StoredVerdict(files[row.path], row.start, row.length)
        self.fingerprints = frozenset(fingerprints.get(judge or "", ()))
        """Of all verdicts of the judge."""

    def of(self, row: ConversationRow) -> str | Rewards:
        """Return a conversation's rewards, or why it has none."""
        known = self._known.get(row.conversation_id, "not judged")
        if isinstance(known, float):
            return known, ()
        if not isinstance(known, StoredVerdict):
            return known
        verdict = known.records.read(known.start, known.length)

        def read() -> Conversation:
            return self._run.read_conversation(row.path, row.start, row.length)

        reward = _reward_of(self._run, verdict, self._metric, read)
        return reward, _turns_of(self._run, verdict, self._metric)


def _rewards_in_row(row: VerdictRow, data: Data) -> str | float | Rewards | None:
    """Return the rewards that the index holds, or why there is none; None where the verdict has to
    be read."""
    if not row.scored:
        return "judge failed"
    if data.least:
        scores = row.scores
        if any(scores.get(name, value) < value for name, value in data.least.items()):
            return "below data.least"
    if data.metric != "reward" or row.reward is None:
        return None
    turns = tuple(one.reward for one in turn_scores(row)) if row.details_json else ()
    return (row.reward, turns) if turns else row.reward


def choose_judge(
    run: Run, judges: Iterable[str], wanted: str | None, *, needed: bool = True
) -> str:
    """Return the one of a run's judges whose verdicts count: the one named, or the only one there
    is; "" where there is none and none is `needed`."""
    there = sorted(judges)
    if not there and not needed:
        return ""
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


def one_version(run: Run, judge: str, versions: set[str]) -> None:
    """Refuse verdicts of two versions of one judge: their rewards are not comparable."""
    if len(versions) > 1:
        raise TrainError(
            f"{run.path}: verdicts of judge {judge!r} come from {len(versions)} versions of its "
            f"rubric or model; expected one; judge all again: convbench judge --judge {judge}"
        )


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


def _reward_of(run: Run, verdict: Verdict, metric: str, read: Callable[[], Conversation]) -> float:
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
        questions = len(asking_turns(protocol, read()))
        if spec.per == "turn":
            turns = [one.scores for one in turn_scores(verdict)]
            return rewards.of_turns(rule, protocol, turns, questions)
        return rewards.reward(rule, protocol, verdict.scores, questions)
    if verdict.reward is None:
        raise TrainError(f"verdict of {verdict.conversation_id} by {verdict.judge!r} has no reward")
    return verdict.reward
