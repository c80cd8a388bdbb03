"""Read the rewards that one judge gave to a run's conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from convbench import rewards
from convbench.errors import ConvbenchError, TrainError
from convbench.schema import JudgeSpec, ProtocolSpec, turn_scores
from convbench.schema.judge import TurnScores
from convbench.schema.recipe import Data
from convbench.store.index import ConversationRow, VerdictRow
from convbench.store.run import Run
from convbench.views import asking_turns

UNREWARDED = ("not judged", "judge failed")
"""Reasons why a conversation that could train has no reward."""
Rewards = tuple[float, tuple[float, ...]]
"""A conversation's reward, and those of the policy's turns (empty if its judge scored no turns)."""


class JudgeRewards:
    """Rewards by conversation, from the newest verdicts of one judge."""

    def __init__(self, run: Run, judge: str | None, data: Data) -> None:
        """`judge` is the judge's name; None takes the judge of the first verdict."""
        self._run, self._data, reviewers = run, data, run.reviewer_fingerprints()
        self._specs = run.judge_specs()
        self.judges: set[str] = set()
        """Names of the run's judges, without those that review the simulated human."""
        self.versions: set[str] = set()
        """Fingerprints of the judge in verdicts that did not fail."""
        self._known: dict[str, float | Rewards | str | ConvbenchError | VerdictRow] = {}
        """By conversation: its reward alone, its rewards, the reason why it has none, the error to
        raise, or a verdict whose rewards depend on the conversation's text."""
        self._below: dict[str, set[str]] = {}
        """The judges with a score below `data.least`, by conversation."""
        fingerprints: dict[str, set[str]] = {}
        for row in run.verdict_rows():
            self._hold_against_least(row)
            fingerprints.setdefault(row.judge, set()).add(row.fingerprint)
            if row.fingerprint in reviewers:
                continue
            self.judges.add(row.judge)
            judge = row.judge if judge is None else judge
            if row.judge == judge:
                if row.scored:
                    self.versions.add(row.fingerprint)
                self._known[row.conversation_id] = self._read_row(row)
        self.fingerprints = frozenset(fingerprints.get(judge or "", ()))
        """Fingerprints of all verdicts of the judge, failed ones included."""

    def rewards_of(self, row: ConversationRow) -> str | Rewards:
        """Return (a conversation's reward, those of its policy's turns), or as text the reason why
        it has none.

        Reasons are `not judged`, `judge failed` and `below data.least`. The turns are empty if the
        judge scored no turns. Raise ConvbenchError if its verdict lacks the metric.
        """
        known = self._known.get(row.conversation_id, "not judged")
        if self._below.get(row.conversation_id) and not isinstance(known, str):
            return "below data.least"
        if isinstance(known, VerdictRow):
            conversation = self._run.read_conversation(row.path, row.start, row.length)
            known = self._read_row(
                known, len(asking_turns(self._run.manifest.protocol, conversation))
            )
        if isinstance(known, ConvbenchError):
            raise known
        assert not isinstance(known, VerdictRow)
        return (known, ()) if isinstance(known, float) else known

    def _hold_against_least(self, row: VerdictRow) -> None:
        """Note whether a judge's newest scores of a conversation reach what `data.least` asks."""
        asked = self._data.least
        names = {row.judge, row.judge.partition("@")[0], "*"} & asked.keys()
        if not (names and row.scored):
            return
        scores, judges = row.scores, self._below.setdefault(row.conversation_id, set())
        least = [item for name in names for item in asked[name].items()]
        reached = all(scores.get(metric, value) >= value for metric, value in least)
        (judges.discard if reached else judges.add)(row.judge)

    def _read_row(
        self, row: VerdictRow, questions: int | None = None
    ) -> float | Rewards | str | ConvbenchError | VerdictRow:
        """Return what a verdict gives (as `_known` holds it); the verdict itself if its rewards
        need the number of the policy's questions and `questions` is None."""
        if not row.scored:
            return "judge failed"
        metric = self._data.metric
        scores = row.scores if metric != "reward" else {}
        spec, protocol = self._specs.get(row.fingerprint), self._run.manifest.protocol
        discounted = spec is not None and rewards.discount_factor(spec.reward, protocol) != 1
        if metric != "reward" and discounted and questions is None:
            return row
        turns = turn_scores(row) if row.details_json else ()
        try:
            reward = _reward_of(row, metric, scores, turns, spec, protocol, questions or 0)
            turn_rewards = _turns_of(row.judge, metric, turns, spec)
        except ConvbenchError as error:
            return error
        return (reward, turn_rewards) if turn_rewards else reward


def choose_judge(run: Run, judges: Iterable[str], name: str | None, *, needed: bool = True) -> str:
    """Return the name of the judge whose verdicts count: the named one, or the run's only one.

    Return "" if there is none and none is `needed`, even if one is named. Raise TrainError without
    verdicts, if several judges are there and none is named, or if the named one is not there.
    """
    available = sorted(judges)
    if not available and not needed:
        return ""
    if not available:
        raise TrainError(
            f"{run.path}: found no verdicts; expected a judged run; run: "
            f"convbench judge --run {run.path}"
        )
    if name is None and len(available) > 1:
        raise TrainError(
            f"{run.path}: found verdicts of {len(available)} judges ({', '.join(available)}); "
            "expected "
            "one to be named; add --judge NAME"
        )
    if name is not None and name not in available:
        raise TrainError(
            f"{run.path}: found no verdicts of judge {name!r}; expected one of "
            f"{', '.join(available)}"
        )
    return name or available[0]


def check_one_version(run: Run, judge: str, versions: set[str]) -> None:
    """Raise TrainError for verdicts of two versions of a judge: they are not comparable."""
    if len(versions) > 1:
        raise TrainError(
            f"{run.path}: verdicts of judge {judge!r} come from {len(versions)} versions of its "
            f"rubric or model; expected one; judge all again: convbench judge --judge {judge}"
        )


def _turns_of(
    judge: str, metric: str, turns: Sequence[TurnScores], spec: JudgeSpec | None
) -> tuple[float, ...]:
    """Return the rewards of the turns by the metric. Raises TrainError if a turn lacks it."""
    if metric == "reward":
        return tuple(turn.reward for turn in turns)
    scale = spec.reward.scale if spec else 1.0
    if any(metric not in turn.scores for turn in turns):
        raise TrainError(f"judge {judge!r}: a turn has no score {metric!r}")
    return tuple(turn.scores[metric] / scale for turn in turns)


def _reward_of(
    row: VerdictRow,
    metric: str,
    scores: Mapping[str, float],
    turns: Sequence[TurnScores],
    spec: JudgeSpec | None,
    protocol: ProtocolSpec,
    questions: int,
) -> float:
    """Return the verdict's reward. For another metric than `reward`, return its score, scaled and
    discounted as the judge's reward is; unchanged if the run does not hold the judge's spec."""
    if metric == "reward":
        if row.reward is None:
            raise TrainError(f"verdict of {row.conversation_id} by {row.judge!r} has no reward")
        return row.reward
    if metric not in scores:
        raise TrainError(
            f"judge {row.judge!r} gives no score {metric!r}; expected `reward` or one of: "
            f"{', '.join(sorted(scores))}"
        )
    if spec is None:
        return scores[metric]
    rule = spec.reward.model_copy(update={"metric": metric})
    if spec.per == "turn":
        return rewards.turns_reward(rule, protocol, [turn.scores for turn in turns], questions)
    return rewards.conversation_reward(rule, protocol, scores, questions)
