"""Run one step of one cell (build, judge, train or eval), and record its outcome."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson

from convbench.engine.session import Session
from convbench.experiments.cells import (
    Step,
    build_options,
    read_questions,
    rounds_options,
    train_options,
    without_address,
)
from convbench.experiments.evaluate import check_evaluation, evaluate_policy, evaluation_name
from convbench.experiments.seal import train_rounds
from convbench.experiments.training import train_once
from convbench.judges.run import judge_with, judge_with_model
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import parse_devices
from convbench.options.specs import load_plugins
from convbench.options.train import RoundsOptions
from convbench.rollout.build import build_or_resume
from convbench.rollout.calls import check_outcome
from convbench.schema import fingerprint
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import Appender, read_records
from convbench.store.steps import FILE

State = Literal["done", "failed", "waits"]
"""`waits`: a step that it needs failed or was not done."""


@dataclass(frozen=True)
class StepOutcome:
    """Outcome of a step."""

    address: str
    mark: str
    """Fingerprint of the experiment's settings of the step."""
    state: State
    said: tuple[str, ...] = ()
    """Why it failed or waits; for a finished step, what failed in it."""
    seconds: float = 0.0
    """Duration."""
    trace: str = ""
    """Traceback of an error that is not a ConvbenchError."""


class OutcomeRecord:
    """The file of outcomes; a line torn by a kill is skipped."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._lock = threading.Lock()
        self.outcomes: dict[tuple[str, str], StepOutcome] = {}
        for line in read_records(self.path, "address", "mark", "state"):
            lines = tuple(str(word) for word in line.get("said") or ())
            state: State = "done" if line["state"] == "done" else "failed"
            self.outcomes[line["address"], line["mark"]] = StepOutcome(
                line["address"], line["mark"], state, lines
            )

    def last_outcome(self, address: str, mark: str) -> StepOutcome | None:
        """Return the last outcome of a step with these settings, or None.

        One that was read from the file has state `failed` if it waited, and neither duration nor
        traceback.
        """
        return self.outcomes.get((address, mark))

    def is_complete(self, address: str, mark: str) -> bool:
        """Return True if a step with these settings is done and nothing in it failed."""
        last = self.last_outcome(address, mark)
        return last is not None and last.state == "done" and not last.said

    def write(self, outcome: StepOutcome) -> None:
        """Append an outcome to the file with the present time, and make it the step's last one."""
        self.outcomes[outcome.address, outcome.mark] = outcome
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock, Appender(self.path) as file:
            file.write(orjson.dumps({**asdict(outcome), "at": at}))


BUILD_FIELDS = (
    "count",
    "samples",
    "temperatures",
    "max_tokens",
    "model",
    "teacher",
    "sets",
)
"""Fields of an experiment that define a build."""


def do_step(
    step: Step, spec: ExperimentSpec, root: Path, options: ExperimentOptions, session: Session
) -> list[str]:
    """Run or resume one step; return lines on what failed. A finished one costs a look at the disk.

    `spec` is the experiment with the settings of the step's cell, `root` the experiment's folder.
    Raises ConvbenchError subclasses if the step was stopped or too much of it failed, and
    KeyboardInterrupt; the same call then resumes it.
    """
    load_plugins(options.specs)
    path = root / step.cell.name
    match step.kind:
        case "build":
            failures = _build_step(step, spec, path, options, session)
        case "judge":
            failures = _judge_step(spec, path, without_address(options), session)
        case "train":
            failures = _train_step(step, spec, path, without_address(options), session)
        case _:
            failures = _evaluate_step(step, spec, path, without_address(options), session)
    return [line for line in failures if line]


def has_result(step: Step, root: Path) -> bool:
    """Return True if a step's last file exists; a build or a judging may still have failures to try
    again.

    That is `conversations.jsonl` of a build, `verdicts.jsonl` of a judging or an evaluation, and a
    finished checkpoint of a training, or the evaluation of one of its rounds.
    """
    path = root / step.cell.name
    if step.kind == "train":
        return Checkpoint(path / "checkpoints" / step.checkpoint).is_finished or bool(
            _round_evaluations(path, step)
        )
    if step.kind == "build":
        return (path / "conversations.jsonl").exists()
    folders = [path / "evals" / step.checkpoint, *_round_evaluations(path, step)]
    places = folders if step.kind == "eval" else [path]
    return any((folder / "verdicts.jsonl").exists() for folder in places)


def _round_evaluations(path: Path, step: Step) -> list[Path]:
    """Return the folders of the evaluations of a learner with rounds, one a round."""
    if step.pooled:
        return []
    recipe, _, label = step.learner.partition(":")
    learner = RoundsOptions(recipe, label=label).learner_name
    return list((path / "evals").glob(f"{learner}-round-*"))


def step_fingerprint(step: Step, spec: ExperimentSpec) -> str:
    """Return 16 hex digits that identify an experiment's settings of a step; the cell itself is not
    among them."""
    build_settings = (
        {name: getattr(spec, name) for name in BUILD_FIELDS} if step.kind == "build" else {}
    )
    judges = [] if step.kind == "build" else list(spec.judges)
    recipe = spec.sets_of(step.settings_name) if step.learner else {}
    pooled_cells = [cell.name for cell in step.pooled]
    earlier_sets = {name: spec.sets_of(name) for name in spec.start_of(step.learner)}
    parts = [step.kind, build_settings, judges[:1] if step.kind == "train" else judges, recipe]
    more = (pooled_cells, earlier_sets, step.policy)
    return fingerprint(*parts, *(part for part in more if part))


def _build_step(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions, session: Session
) -> Sequence[str | None]:
    build_request = build_options(step.cell, spec, path, options)
    if (path / "run.json").exists():
        build_request = BuildOptions(
            run=path, tested=True, calls=options.calls, specs=replace(options.specs, sets=())
        )
    built = build_or_resume(build_request, session, read_questions).built
    assert built is not None
    return [check_outcome(built.jobs, options.calls, "conversations", built.failures)]


def _judge_step(
    spec: ExperimentSpec, path: Path, options: ExperimentOptions, session: Session
) -> Sequence[str | None]:
    run = Run.open(path)
    judges = [
        replace(
            judge_with_model(name, options.specs, options.calls, task=run.manifest.task),
            split=spec.scored_split(name),
        )
        for name in dict.fromkeys(spec.judges)
    ]
    session = session.naming(*(each.model for each in judges))
    return [
        check_outcome(each.jobs, options.calls, f"verdicts of {each.name}", each.failures)
        for each in judge_with(run, judges, options.calls, session).summaries
    ]


def _train_step(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions, session: Session
) -> Sequence[str | None]:
    rounds = rounds_options(step, spec, path, options)
    if rounds is not None:  # evaluates every round too
        table = train_rounds(rounds, session).table
        return [] if table is None else list(_absent_baselines(path, spec))
    training = train_options(step, spec, path, options)
    train_once(training, path / "checkpoints" / step.checkpoint, session)
    return []


def _absent_baselines(path: Path, spec: ExperimentSpec) -> Iterator[str]:
    """Yield a line for each other model whose edits a table of self-edits lacks, so that the step
    is done again when they are there."""
    for name in spec.policies:
        if not (path / "evals" / evaluation_name(name) / "verdicts.jsonl").exists():
            yield f"the table lacks the self-edits of {name}, which was not evaluated"


def _evaluate_step(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions, session: Session
) -> Sequence[str | None]:
    policy = step.policy
    if not policy:
        if rounds_options(step, spec, path, options) is not None:
            return []
        folder = path.parent / step.home_cell.name / "checkpoints" / step.checkpoint
        served = "policy" in parse_devices(options.calls.devices).vllm
        policy = f"vllm:{folder}" if served else str(folder)
    asked = EvalOptions(policy, (path,), specs=options.specs, calls=options.calls)
    done = evaluate_policy(asked, session)
    return check_evaluation(done, options.calls)
