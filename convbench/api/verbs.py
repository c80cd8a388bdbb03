"""The commands as functions, with the same names of options and the same errors."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from convbench import store
from convbench.api.dry import dry_run, dry_training, together
from convbench.api.frames import Frame
from convbench.api.handles import Checkpoint, DryRun, Report, Run, queried
from convbench.api.signature import options_of, verb
from convbench.commands.import_ import ImportOptions
from convbench.commands.pull import PullOptions
from convbench.commands.pull import pull as pull_run
from convbench.errors import UsageError
from convbench.experiment.evaluate import check_evaluation, evaluate_each
from convbench.experiment.seal import Rounds
from convbench.experiment.train import train as train_recipe
from convbench.judge.units import Judged
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.publish import PublishOptions
from convbench.options.report import ReportOptions
from convbench.options.shared import CallOptions
from convbench.options.train import TrainOptions
from convbench.publish.publish import Published
from convbench.publish.send import published
from convbench.report.report import report as report_runs
from convbench.rollout.build import Built
from convbench.rollout.calls import check_outcome
from convbench.rollout.importing import import_
from convbench.shards.build import build as build_run
from convbench.shards.judge import is_judge_name, judge_each

Place = Run | str | os.PathLike[str] | None
"""A run or its folder; None is the newest run."""
Places = Place | list[Run | str | os.PathLike[str]] | tuple[Run | str | os.PathLike[str], ...]
"""One or several runs or folders; None is the newest run."""


def _first(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def open_run(path: Place = None) -> Run:
    """Return the run in a folder, or the newest run for None. Raises RunError if there is none."""
    if isinstance(path, Run):
        return path
    return Run(store.find_run(None if path is None else Path(path)))


def _folders(run: Places) -> tuple[Path, ...]:
    """Return the folders of one or several runs; None stands for the newest."""
    return tuple(open_run(one).path for one in (run if isinstance(run, list | tuple) else (run,)))


@verb(BuildOptions, _first("task", str | None, None))
def build(task: str | None = None, **said: Any) -> Run | DryRun:
    """Build a run of conversations about a task, or resume the run that `run` names, and return
    it."""
    options = options_of(BuildOptions, {"task": task, **_placed(said)})
    result = build_run(options)
    if result.preview is not None:
        return dry_run(result.preview)
    assert result.path is not None
    assert result.built is not None
    _told(result.warnings)
    _ended(result.built, options.calls, "conversations")
    return open_run(result.path)


@verb(
    JudgeOptions,
    _first("run", Place, None),
    inspect.Parameter("judge", inspect.Parameter.VAR_POSITIONAL, annotation=str),
)
def judge(run: Place = None, *judge: str, **said: Any) -> Run | DryRun:
    """Score the conversations of a run and of its evaluations that these judges have not scored.
    Return the run."""
    if isinstance(run, str) and is_judge_name(run):
        raise UsageError(
            f"convbench.judge({run!r}): found no such run, but a judge of this name; expected it "
            f"behind the run: convbench.judge(run, {run!r}), or None for the newest run"
        )
    options = options_of(JudgeOptions, {"run": open_run(run).path, "judge": judge, **_placed(said)})
    if options.dry_run:
        found = (one for each in judge_each(options) for one in each.previews)
        return dry_run(None, tuple(found))
    for result in judge_each(options):
        for judged in result.judged:
            _ended(judged, options.calls, f"verdicts of {judged.name}")
    return open_run(run)


@verb(TrainOptions, _first("recipe", str), _first("run", Places, None))
def train(recipe: str, run: Places = None, **said: Any) -> Checkpoint | DryRun:
    """Train a recipe on a run, or on several runs as one log. Return the checkpoint; with several
    rounds the last one."""
    options = options_of(TrainOptions, {"recipe": recipe, "run": _folders(run), **_placed(said)})
    done = train_recipe(options)
    if isinstance(done, Rounds):
        return Checkpoint(done.result.rounds.rounds[-1].checkpoint)
    _told(done.notes)
    if done.path is None:
        return dry_training(done.preview)
    return Checkpoint(done.path)


@verb(
    EvalOptions, _first("policy", Checkpoint | str | os.PathLike[str]), _first("run", Places, None)
)
def eval(
    policy: Checkpoint | str | os.PathLike[str], run: Places = None, **said: Any
) -> Run | list[Run] | DryRun:
    """Evaluate a policy on the test questions of a run. Return the child run, or a list of child
    runs for a list of runs."""
    name = policy.path if isinstance(policy, Checkpoint) else policy
    values = {"policy": os.fspath(name), **_placed(said)}
    several = isinstance(run, list | tuple)
    if run is not None:
        values["run"] = _folders(run)
    options = options_of(EvalOptions, values)
    children: list[Run] = []
    shown: list[DryRun] = []
    for done in evaluate_each(options):
        if done.preview is not None:
            shown.append(dry_run(done.preview, done.judged.previews if done.judged else ()))
            continue
        _told(check_evaluation(done, options.calls))
        children.append(open_run(done.run.path))
    if shown:
        return together(shown)
    return children if several else children[0]


@verb(ReportOptions, inspect.Parameter("runs", inspect.Parameter.VAR_POSITIONAL, annotation=Place))
def report(*runs: Place, **said: Any) -> Report:
    """Return a report that compares Base and the learners of runs, by default of the newest."""
    options = options_of(ReportOptions, {"runs": [open_run(run).path for run in runs], **said})
    result = report_runs(options)
    _told(result.warnings)
    return Report(result)


def query(sql: str, *runs: Place, frame: Frame = "pandas") -> Any:
    """Return the result of one SELECT over runs, by default the newest, as a data frame."""
    return queried(sql, [open_run(run) for run in runs or (None,)], frame)


@verb(PublishOptions, _first("repo", str), _first("run", Place, None))
def publish(repo: str, run: Place = None, **said: Any) -> Path | str:
    """Publish a run or a checkpoint. Return its address, or the folder of a dry run."""
    values = {"repo": repo, **_placed(said)}
    if run is not None:
        values["run"] = open_run(run).path
    _, done = published(options_of(PublishOptions, values))
    if done.uploaded is not None:
        return done.uploaded.url
    return done.laid.folder if isinstance(done, Published) else done.folder


@verb(PullOptions, _first("repo", str))
def pull(repo: str, **said: Any) -> Run:
    """Restore a published run and return it."""
    options = options_of(PullOptions, {"repo": repo, **said})
    return open_run(pull_run(options).run.path)


@verb(ImportOptions, _first("file", str | os.PathLike[str]))
def import_logs(file: str | os.PathLike[str], **said: Any) -> Run:
    """Return a new run with conversations and rewards that were logged elsewhere."""
    options = options_of(ImportOptions, {"file": os.fspath(file), **said})
    done = import_(options.file, options.run, options.names)
    _told(done.notes)
    return open_run(done.run.path)


def _placed(said: dict[str, Any]) -> dict[str, Any]:
    """Return keywords with runs and checkpoints replaced by their folders."""
    return {
        key: value.path if isinstance(value, Run | Checkpoint) else value
        for key, value in said.items()
    }


def _told(notes: Iterable[str]) -> None:
    for text in notes:
        warnings.warn(text, stacklevel=3)


def _ended(done: Built | Judged, calls: CallOptions, what: str) -> None:
    """Raise the error that stopped a build or a judge, or one for too many failures; warn about
    fewer failures."""
    if line := check_outcome(done.jobs, calls, what, done.failures):
        warnings.warn(line, stacklevel=3)
