"""Estimate a policy's mean reward from another policy's log, or say why that is impossible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench.errors import TrainError
from convbench.learn.logged import Logged
from convbench.learn.ratios import CannotBeKnown, ratios
from convbench.learn.select import Selection, collect
from convbench.models.where import folder_of
from convbench.options.estimate import EstimateOptions
from convbench.schema.recipe import Data
from convbench.stats.offpolicy import Draw, Overlap, Value, direct, gain, overlap, robust, snips
from convbench.store import Run, find_run
from convbench.store.checkpoint import Checkpoint


@dataclass
class Estimated:
    """Estimates of a policy's mean reward from a run."""

    run: Run
    policy: str
    judge: str
    conversations: int
    skipped: dict[str, int]
    logged: Value | None = None
    """The mean reward of the log's own policy."""
    overlap: Overlap | None = None
    unknown: list[str] = field(default_factory=list)
    """Reasons why nothing is estimated; empty if it is."""
    values: dict[str, Value] = field(default_factory=dict)
    """By estimator: `snips`, `doubly robust`, `direct`, and `gain` (SNIPS less the mean reward of
    the log's own policy)."""
    notes: list[str] = field(default_factory=list)


def estimate(options: EstimateOptions) -> Estimated:
    """Return estimates of a policy's mean reward from a run.

    Raises ConvbenchError if options, run or verdicts are wrong. If the log cannot say anything
    about the policy, the reasons are in `unknown`.
    """
    run = find_run(options.run)
    policy = (
        str(folder_of(options.policy)) if folder_of(options.policy).is_dir() else options.policy
    )
    found = _logged(run, options)
    flagged = list(found.flagged.describe())
    result = Estimated(run, policy, found.judge, len(found.logged), found.skipped, notes=flagged)
    draws = [(item.task, item.reward) for item in found.logged]
    result.logged = direct(draws)
    try:
        _own_questions(run, Path(policy), options.split)
        weighed = ratios(found, policy, options.pi_0)
    except CannotBeKnown as error:
        result.unknown.append(str(error))
        return result
    told = [Draw(one.logged.task, one.log_ratio, one.logged.reward) for one in weighed]
    result.overlap = overlap(told)
    result.unknown = result.overlap.unknown()
    sampled: list[tuple[str, float]] = []
    if options.model_judge is not None:
        predicted = _predictions(run, options)
        sampled = list(_sampled(run, Path(policy), options))
        told, lost = _predicted(told, [one.logged for one in weighed], predicted)
        if lost:
            result.notes.append(f"{lost} conversations without a verdict of {options.model_judge}")
        value = direct(sampled)
        if value is not None:
            result.values["direct"] = value  # needs no importance weights
    if not result.unknown:
        result.values |= {"snips": snips(told), "doubly robust": robust(told, sampled)}
        result.values["gain"] = gain(told)
    return result


def _logged(run: Run, options: EstimateOptions) -> Selection:
    """Return the judged conversations of the run's policy. Raises TrainError if they are about
    fewer than 2 questions."""
    data = Data(judge=options.judge, metric=options.metric, flagged="keep")
    found = collect(run, data, options.split)
    if len(found.tasks()) < 2:
        why = ", ".join(f"{count} {reason}" for reason, count in found.skipped.items())
        raise TrainError(
            f"{run.path}: found judged conversations about {len(found.tasks())} questions of split "
            f"{options.split} ({why or 'the run is empty'}); expected at least 2"
        )
    return found


def _own_questions(run: Run, policy: Path, split: str) -> None:
    """Raise NotEstimable for questions that the policy was trained on: its ratios are biased."""
    told = Checkpoint(policy).training if policy.is_dir() else {}
    trained = [told.get("run"), *(part.get("run") for part in told.get("runs") or ())]
    if run.manifest.id in trained and split in ("train", "all"):
        raise CannotBeKnown(
            f"the policy was trained on the train questions of {run.path}, whose rewards it fits; "
            "expected others: --split test, or another run"
        )


def _predictions(run: Run, options: EstimateOptions) -> dict[str, float]:
    """Return the reward model's reward of each conversation of a run, by id. Raises TrainError if
    it judged none."""
    name = options.model_judge
    found = {
        v.conversation_id: v.reward
        for v in run.verdicts()
        if v.judge == name and v.failure is None and v.reward is not None
    }
    if not found:
        raise TrainError(
            f"{run.path}: found no verdicts of {name}; expected a reward model that judged it: "
            f"convbench judge --judge {name} --run {run.path}"
        )
    return found


def _sampled(run: Run, policy: Path, options: EstimateOptions) -> Iterator[tuple[str, float]]:
    """Yield (question, predicted reward) of the policy's own conversations about the same
    questions. Raises TrainError if there are none."""
    named = [
        child
        for child in run.children()
        if folder_of(child.manifest.checkpoint or "").resolve() == policy.resolve()
        and options.split in ("all", child.manifest.split)
    ]
    if not named:
        raise TrainError(
            f"{run.evals}: found no conversations of {policy} about split {options.split}; the "
            f"direct estimate needs some: convbench eval {policy} --run {run.path}"
        )
    words = _predictions(named[0], options)
    for conversation in named[0].conversations():
        if conversation.conversation_id in words:
            yield conversation.example_id, words[conversation.conversation_id]


def _predicted(
    draws: list[Draw], items: list[Logged], words: dict[str, float]
) -> tuple[list[Draw], int]:
    """Return (the draws that the reward model judged, with its prediction; count of the others)."""
    found = []
    for draw, item in zip(draws, items, strict=True):
        said = words.get(item.conversation_id)
        if said is not None:
            found.append(replace(draw, predicted=said))
    return found, len(draws) - len(found)
