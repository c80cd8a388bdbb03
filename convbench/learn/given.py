"""What one judge gave to a run's conversations: a reward each, few bytes where it is that alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

from convbench import rewards
from convbench.errors import TrainError
from convbench.schema import Conversation, Verdict, turn_scores
from convbench.schema.recipe import Data
from convbench.stats.columns import Column
from convbench.store.index import ConversationRow
from convbench.store.keys import Hashes, Ordinals
from convbench.store.places import Records
from convbench.store.run import Run
from convbench.views import asking_turns

UNREWARDED = ("not judged", "judge failed")
"""Why a conversation that could train has no reward."""
Rewards = tuple[float, tuple[float, ...]]
"""A conversation's reward, and those of the policy's own turns where their judge scored turns."""


class Given:
    """The newest verdicts of one judge, by conversation: a reward each, and of those of which more
    is asked where they lie. Few of either are in memory."""

    def __init__(self, run: Run, judge: str, data: Data) -> None:
        self._run, self._data, reviewers = run, data, run.reviewers()
        self.versions: set[str] = set()
        """Fingerprints of the judge in verdicts that did not fail."""
        hashes, self._rewards = Hashes(), Column(array("d"))
        self._starts, self._lengths = Column(array("q")), Column(array("i"))
        """Where a verdict lies of which more is asked than the reward; else -1, and 0."""
        self._files, files = Column(array("i")), dict[Path, int]()
        bare = data.metric == "reward" and not data.least
        for row in run.verdict_rows() if judge else ():
            if row.judge != judge or row.fingerprint in reviewers:
                continue
            hashes.add(row.conversation_id)
            self._rewards.append(row.reward or 0.0)
            if row.scored:
                self.versions.add(row.fingerprint)
            alone = bare and row.reward is not None and not row.details_json
            self._starts.append(-1 if alone else row.start)
            self._lengths.append(0 if alone else row.length)
            self._files.append(files.setdefault(row.path, len(files)))
        self._records = [Records(path, Verdict) for path in files]
        self._places = Ordinals(hashes)

    def rewards(self, row: ConversationRow) -> str | Rewards:
        """Return a conversation's rewards, or why it has none."""
        place = self._places.of(row.conversation_id)
        if place is None:
            return "not judged"
        start = self._starts[place]
        if start < 0:
            return self._rewards[place], ()
        verdict = self._records[self._files[place]].read(start, self._lengths[place])
        if verdict.failure is not None:
            return "judge failed"
        least = self._data.least.items()
        if any(verdict.scores.get(name, value) < value for name, value in least):
            return "below data.least"
        metric = self._data.metric
        reward = _reward_of(
            self._run, verdict, metric, lambda: self._run.read_conversation(*row[:3])
        )
        return reward, _turns_of(self._run, verdict, metric)


def the_judge(run: Run, wanted: str | None, *, needed: bool = True) -> str:
    """Return the judge whose verdicts count: the one named, or the only one there is; "" where
    there is none and none is `needed`."""
    reviewers = run.reviewers()
    there = sorted({judge for judge, mark in run.judged_by() if mark not in reviewers})
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
