"""Run one step of one cell (build, judge, train or eval), and record its outcome."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson

from convbench.experiment.cells import (
    Step,
    build_options,
    elsewhere,
    read,
    rounds_options,
    train_options,
)
from convbench.experiment.evaluate import check_evaluation, evaluate
from convbench.experiment.seal import train_rounds
from convbench.judge.all import judge_with, judge_with_model
from convbench.learn.start import train_once
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import devices_of
from convbench.options.specs import load_plugins
from convbench.report.experiment.steps import FILE
from convbench.rollout.build import build
from convbench.rollout.calls import check_outcome
from convbench.schema import fingerprint
from convbench.schema.experiment import ExperimentSpec, recipe_of
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import Appender, records

State = Literal["done", "failed", "waits"]
"""`waits`: a step that it needs failed or was not done."""


@dataclass(frozen=True)
class Outcome:
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


class Record:
    """The file of outcomes; a line torn by a kill is skipped."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._lock = threading.Lock()
        self.found: dict[tuple[str, str], Outcome] = {}
        for line in records(self.path, "address", "mark", "state"):
            said = tuple(str(word) for word in line.get("said") or ())
            state: State = "done" if line["state"] == "done" else "failed"
            self.found[line["address"], line["mark"]] = Outcome(
                line["address"], line["mark"], state, said
            )

    def of(self, address: str, mark: str) -> Outcome | None:
        """Return the last outcome of a step with these settings, or None."""
        return self.found.get((address, mark))

    def whole(self, address: str, mark: str) -> bool:
        """Return True if a step with these settings is done and nothing in it failed."""
        last = self.of(address, mark)
        return last is not None and last.state == "done" and not last.said

    def write(self, outcome: Outcome) -> None:
        """Append an outcome to the file."""
        self.found[outcome.address, outcome.mark] = outcome
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock, Appender(self.path) as file:
            file.write(orjson.dumps({**asdict(outcome), "at": at}))


OF_BUILD = ("count", "samples", "temperatures", "max_tokens", "regime", "model", "teacher", "sets")
"""Fields of an experiment that define a build."""


def do(step: Step, spec: ExperimentSpec, root: Path, options: ExperimentOptions) -> list[str]:
    """Run or resume one step; return lines on what failed. A finished one costs a look at the disk.

    `spec` is the experiment with the settings of the step's cell, `root` the experiment's folder.
    Raises ConvbenchError subclasses if the step was stopped or too much of it failed, and
    KeyboardInterrupt; the same call then resumes it.
    """
    load_plugins(options.specs)
    path = root / step.cell.name
    match step.kind:
        case "build":
            lost = _build(step, spec, path, options)
        case "judge":
            lost = _judge(spec, path, elsewhere(options))
        case "train":
            lost = _train(step, spec, path, elsewhere(options))
        case _:
            lost = _evaluate(step, spec, path, elsewhere(options))
    return [line for line in lost if line]


def there(step: Step, root: Path) -> bool:
    """Return True if the last result of a step exists; a build or a judging may still have failures
    to try again."""
    path = root / step.cell.name
    if step.kind == "train":
        return Checkpoint(path / "checkpoints" / step.checkpoint).finished or bool(
            _rounds(path, step)
        )
    if step.kind == "build":
        return (path / "conversations.jsonl").exists()
    folders = [path / "evals" / step.checkpoint, *_rounds(path, step)]
    places = folders if step.kind == "eval" else [path]
    return any((place / "verdicts.jsonl").exists() for place in places)


def _rounds(path: Path, step: Step) -> list[Path]:
    """Return the folders of the evaluations of a learner with rounds, one a round."""
    if step.pooled or ":" in step.learner:
        return []
    return list((path / "evals").glob(f"{Path(recipe_of(step.learner)).stem}-round-*"))


def mark(step: Step, spec: ExperimentSpec) -> str:
    """Return a fingerprint of an experiment's settings of a step."""
    said = {name: getattr(spec, name) for name in OF_BUILD} if step.kind == "build" else {}
    judges = [] if step.kind == "build" else list(spec.judges)
    recipe = spec.sets_of(step.called) if step.learner else {}
    logs = [cell.name for cell in step.pooled]
    before = {name: spec.sets_of(name) for name in spec.start_of(step.learner)}
    told = [step.kind, said, judges[:1] if step.kind == "train" else judges, recipe]
    return fingerprint(*told, *(part for part in (logs, before) if part))


def _build(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> Sequence[str | None]:
    asked = build_options(step.cell, spec, path, options)
    if (path / "run.json").exists():
        asked = BuildOptions(
            run=path, tested=True, calls=options.calls, specs=replace(options.specs, sets=())
        )
    built = build(asked, read).built
    assert built is not None
    return [check_outcome(built.jobs, options.calls, "conversations", built.failures)]


def _judge(spec: ExperimentSpec, path: Path, options: ExperimentOptions) -> Sequence[str | None]:
    run = Run.open(path)
    judges = [
        judge_with_model(name, options.specs, options.calls, task=run.manifest.task)
        for name in dict.fromkeys(spec.judges)
    ]
    named = options.calls.naming(*(one.model for one in judges if one.model))
    return [
        check_outcome(one.jobs, options.calls, f"verdicts of {one.name}", one.failures)
        for one in judge_with(run, judges, named).judged
    ]


def _train(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> Sequence[str | None]:
    loop = rounds_options(step, spec, path, options)
    if loop is not None:  # evaluates every round too
        train_rounds(loop)
    else:
        folder = path / "checkpoints" / step.checkpoint
        train_once(train_options(step, spec, path, options), folder)
    return []


def _evaluate(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> Sequence[str | None]:
    if rounds_options(step, spec, path, options) is not None:
        return []
    folder = path.parent / step.home.name / "checkpoints" / step.checkpoint
    served = "policy" in devices_of(options.calls.devices).vllm
    policy = f"vllm:{folder}" if served else str(folder)
    done = evaluate(EvalOptions(policy, (path,), specs=options.specs, calls=options.calls))
    return check_evaluation(done, options.calls)
