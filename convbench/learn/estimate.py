"""Estimate a policy's mean reward from another policy's log, or say why that is impossible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.errors import TrainError
from convbench.learn.log import LoggedConversation
from convbench.learn.ratios import NotEstimable, log_ratios
from convbench.learn.select import Selection, collect_conversations
from convbench.models.weights_path import folder_of
from convbench.options.estimate import EstimateOptions
from convbench.schema.recipe import Data
from convbench.stats.offpolicy import (
    LoggedReward,
    LogOverlap,
    PolicyValue,
    direct_value,
    doubly_robust,
    measure_overlap,
    snips_value,
    value_gain,
)
from convbench.store import Run, find_run
from convbench.store.checkpoint import Checkpoint


@dataclass
class PolicyEstimate:
    """Estimates of a policy's mean reward from a run."""

    run: Run
    policy: str
    judge: str
    conversations: int
    skipped: dict[str, int]
    logged: PolicyValue | None = None
    """The mean reward of the log's own policy."""
    overlap: LogOverlap | None = None
    unknown: list[str] = field(default_factory=list)
    """Reasons why nothing is estimated; empty if it is."""
    values: dict[str, PolicyValue] = field(default_factory=dict)
    """By estimator: `snips`, `doubly robust`, `direct`, and `gain` (SNIPS less the mean reward of
    the log's own policy)."""
    notes: list[str] = field(default_factory=list)


def estimate_policy(options: EstimateOptions) -> PolicyEstimate:
    """Return estimates of a policy's mean reward from a run.

    If the log cannot say anything about the policy, the reasons are in `unknown`, and `values`
    holds at most `direct`, which needs no weights. `direct` is there only with a reward model
    (`model_judge`). Raise ConvbenchError if options, run or verdicts are wrong, or if fewer than
    two questions are judged.
    """
    run = find_run(options.run)
    policy = (
        str(folder_of(options.policy)) if folder_of(options.policy).is_dir() else options.policy
    )
    selection = _judged_conversations(run, options)
    flagged = list(selection.flagged.describe())
    result = PolicyEstimate(
        run, policy, selection.judge, len(selection.logged), selection.skipped, notes=flagged
    )
    draws = [(item.task, item.reward) for item in selection.logged]
    result.logged = direct_value(draws)
    try:
        _refuse_own_questions(run, Path(policy), options.split)
        policy_ratios = log_ratios(selection, policy, options.pi_0)
    except NotEstimable as error:
        result.unknown.append(str(error))
        return result
    weighted_draws = [
        LoggedReward(ratio.logged.task, ratio.log_ratio, ratio.logged.reward)
        for ratio in policy_ratios
    ]
    result.overlap = measure_overlap(weighted_draws)
    result.unknown = result.overlap.unknown_reasons()
    sampled: list[tuple[str, float]] = []
    if options.model_judge is not None:
        predicted = _predicted_rewards(run, options)
        sampled = list(_policy_predictions(run, Path(policy), options))
        weighted_draws, lost = _with_predictions(
            weighted_draws, [ratio.logged for ratio in policy_ratios], predicted
        )
        if lost:
            result.notes.append(f"{lost} conversations without a verdict of {options.model_judge}")
        value = direct_value(sampled)
        if value is not None:
            result.values["direct"] = value  # needs no importance weights
    if not result.unknown:
        result.values |= {
            "snips": snips_value(weighted_draws),
            "doubly robust": doubly_robust(weighted_draws, sampled),
        }
        result.values["gain"] = value_gain(weighted_draws)
    return result


def _judged_conversations(run: Run, options: EstimateOptions) -> Selection:
    """Return the judged conversations of the run's policy. Raises TrainError if they are about
    fewer than 2 questions."""
    data = Data(judge=options.judge, metric=options.metric, flagged="keep")
    selection = collect_conversations(run, data, options.split)
    if len(selection.by_task()) < 2:
        why = ", ".join(f"{count} {reason}" for reason, count in selection.skipped.items())
        raise TrainError(
            f"{run.path}: found judged conversations about {len(selection.by_task())} questions "
            "of split "
            f"{options.split} ({why or 'the run is empty'}); expected at least 2"
        )
    return selection


def _refuse_own_questions(run: Run, policy: Path, split: str) -> None:
    """Raise NotEstimable for questions that the policy was trained on: its ratios are biased."""
    training = Checkpoint(policy).training if policy.is_dir() else {}
    trained = [training.get("run"), *(part.get("run") for part in training.get("runs") or ())]
    if run.manifest.id in trained and split in ("train", "all"):
        raise NotEstimable(
            f"the policy was trained on the train questions of {run.path}, and fits their rewards; "
            "expected others: --split test, or another run"
        )


def _predicted_rewards(run: Run, options: EstimateOptions) -> dict[str, float]:
    """Return the reward model's reward of each conversation of a run, by id. Raises TrainError if
    it judged none."""
    name = options.model_judge
    rewards = {
        v.conversation_id: v.reward
        for v in run.verdicts()
        if v.judge == name and v.failure is None and v.reward is not None
    }
    if not rewards:
        raise TrainError(
            f"{run.path}: found no verdicts of {name}; expected a reward model that judged it: "
            f"convbench judge --judge {name} --run {run.path}"
        )
    return rewards


def _policy_predictions(
    run: Run, policy: Path, options: EstimateOptions
) -> Iterator[tuple[str, float]]:
    """Yield (question, predicted reward) of the policy's own conversations about the same
    questions. Raises TrainError if there are none."""
    named = [
        child
        for child in run.child_runs()
        if folder_of(child.manifest.checkpoint or "").resolve() == policy.resolve()
        and options.split in ("all", child.manifest.split)
    ]
    if not named:
        raise TrainError(
            f"{run.evals_folder}: found no conversations of {policy} about split {options.split}; "
            "the "
            f"direct estimate needs some: convbench eval {policy} --run {run.path}"
        )
    predictions = _predicted_rewards(named[0], options)
    for conversation in named[0].conversations():
        if conversation.conversation_id in predictions:
            yield conversation.example_id, predictions[conversation.conversation_id]


def _with_predictions(
    draws: list[LoggedReward], items: list[LoggedConversation], predictions: dict[str, float]
) -> tuple[list[LoggedReward], int]:
    """Return (the draws that the reward model judged, with its prediction; count of the others)."""
    predicted_draws = []
    for draw, item in zip(draws, items, strict=True):
        prediction = predictions.get(item.conversation_id)
        if prediction is not None:
            predicted_draws.append(replace(draw, predicted=prediction))
    return predicted_draws, len(draws) - len(predicted_draws)
