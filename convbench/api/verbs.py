"""The commands as functions, with the same names of options and the same errors."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from convbench import store
from convbench.api.dry import dry_run, dry_training, sum_dry_runs
from convbench.api.frames import Frame
from convbench.api.handles import Checkpoint, DryRun, Report, Run, query_frame
from convbench.api.signature import options_of, with_options
from convbench.commands.import_ import ImportOptions
from convbench.commands.pull import PullOptions
from convbench.commands.pull import restore_run as pull_run
from convbench.errors import UsageError
from convbench.experiments.evaluate import check_evaluation, evaluate_each
from convbench.experiments.results import create_report as report_runs
from convbench.experiments.seal import RoundsWithTable
from convbench.experiments.train import run_train as train_recipe
from convbench.hub.collection import publish_experiment
from convbench.hub.dataset import PublishedDataset
from convbench.hub.send import publish_target
from convbench.judges.command import is_judge_name, judge_each
from convbench.judges.units import JudgeSummary
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.publish import PublishOptions
from convbench.options.report import ReportOptions
from convbench.options.shared import CallOptions
from convbench.options.train import TrainOptions
from convbench.rollout.build import BuildSummary
from convbench.rollout.build import build_or_resume as build_run
from convbench.rollout.calls import check_outcome
from convbench.rollout.importing import import_run

RunOrFolder = Run | str | os.PathLike[str] | None
"""A run or its folder; None is the newest run."""
RunsOrFolders = (
    RunOrFolder | list[Run | str | os.PathLike[str]] | tuple[Run | str | os.PathLike[str], ...]
)
"""One or several runs or folders; None is the newest run."""


def _leading_parameter(
    name: str, kind: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def open_run(path: RunOrFolder = None) -> Run:
    """Return the run in a folder, or the newest run (`runs/latest`) for None; a Run is returned as
    it is.

    Raises RunError if there is none.
    """
    if isinstance(path, Run):
        return path
    return Run(store.find_run(None if path is None else Path(path)))


def _run_folders(run: RunsOrFolders) -> tuple[Path, ...]:
    """Return the folders of one or several runs; None stands for the newest."""
    return tuple(open_run(item).path for item in (run if isinstance(run, list | tuple) else (run,)))


@with_options(BuildOptions, _leading_parameter("task", str | None, None))
def build(task: str | None = None, **keywords: Any) -> Run | DryRun:
    """Build a run of conversations about a task, or resume the run that `run` names, and return it.

    With `dry_run=True` return a DryRun. Failed conversations are a warning, or RunError if they
    reach `fail_on`; what stopped the build early is raised.
    """
    options = options_of(BuildOptions, {"task": task, **_with_folders(keywords)})
    result = build_run(options)
    if result.preview is not None:
        return dry_run(result.preview)
    assert result.path is not None
    assert result.built is not None
    _warn_notes(result.warnings)
    _raise_or_warn(result.built, options.calls, "conversations")
    return open_run(result.path)


@with_options(
    JudgeOptions,
    _leading_parameter("run", RunOrFolder, None),
    inspect.Parameter("judge", inspect.Parameter.VAR_POSITIONAL, annotation=str),
)
def judge(run: RunOrFolder = None, *judge: str, **keywords: Any) -> Run | DryRun:
    """Score the conversations of a run and of its evaluations that these judges have not scored.

    Return the run.

    Without names the task's own judge scores. With `dry_run=True` return a DryRun. Failed verdicts
    are a warning, or RunError if they reach `fail_on`; what stopped a judge early is raised.
    """
    if isinstance(run, str) and is_judge_name(run):
        raise UsageError(
            f"convbench.judge({run!r}): found no such run, but a judge of this name; expected it "
            f"behind the run: convbench.judge(run, {run!r}), or None for the newest run"
        )
    options = options_of(
        JudgeOptions, {"run": open_run(run).path, "judge": judge, **_with_folders(keywords)}
    )
    if options.dry_run:
        previews = (preview for each in judge_each(options) for preview in each.previews)
        return dry_run(None, tuple(previews))
    for result in judge_each(options):
        for judged in result.summaries:
            _raise_or_warn(judged, options.calls, f"verdicts of {judged.name}")
    return open_run(run)


@with_options(
    TrainOptions, _leading_parameter("recipe", str), _leading_parameter("run", RunsOrFolders, None)
)
def train(recipe: str, run: RunsOrFolders = None, **keywords: Any) -> Checkpoint | DryRun:
    """Train a recipe on a run, or on several runs as one log. Return the checkpoint.

    With several rounds it is the last one's. With `dry_run=True` return a DryRun.
    """
    options = options_of(
        TrainOptions, {"recipe": recipe, "run": _run_folders(run), **_with_folders(keywords)}
    )
    done = train_recipe(options)
    if isinstance(done, RoundsWithTable):
        return Checkpoint(done.result.rounds.rounds[-1].checkpoint)
    _warn_notes(done.notes)
    if done.path is None:
        return dry_training(done.preview)
    return Checkpoint(done.path)


@with_options(
    EvalOptions,
    _leading_parameter("policy", Checkpoint | str | os.PathLike[str]),
    _leading_parameter("run", RunsOrFolders, None),
)
def eval(
    policy: Checkpoint | str | os.PathLike[str], run: RunsOrFolders = None, **keywords: Any
) -> Run | list[Run] | DryRun:
    """Evaluate a policy on the test questions of a run and score it with the run's judges.

    Return the child run.

    For a list of runs return a list of child runs, in their order. Without `run` it is the run that
    the checkpoint was trained on, else the newest. With `dry_run=True` return one DryRun, the sum
    over all runs.
    """
    name = policy.path if isinstance(policy, Checkpoint) else policy
    values = {"policy": os.fspath(name), **_with_folders(keywords)}
    several = isinstance(run, list | tuple)
    if run is not None:
        values["run"] = _run_folders(run)
    options = options_of(EvalOptions, values)
    children: list[Run] = []
    shown: list[DryRun] = []
    for done in evaluate_each(options):
        if done.preview is not None:
            shown.append(dry_run(done.preview, done.judged.previews if done.judged else ()))
            continue
        _warn_notes(check_evaluation(done, options.calls))
        children.append(open_run(done.run.path))
    if shown:
        return sum_dry_runs(shown)
    return children if several else children[0]


@with_options(
    ReportOptions,
    inspect.Parameter("runs", inspect.Parameter.VAR_POSITIONAL, annotation=RunOrFolder),
)
def report(*runs: RunOrFolder, **keywords: Any) -> Report:
    """Return a report that compares the policies of runs with their bases, by default of the
    newest run.

    Raises RunError if there is nothing to report, or the runs are not comparable.
    """
    options = options_of(ReportOptions, {"runs": [open_run(run).path for run in runs], **keywords})
    return Report(report_runs(options))


def query(sql: str, *runs: RunOrFolder, frame: Frame = "pandas") -> Any:
    """Return the result of one SELECT over runs together, by default the newest, as a data frame.

    `frame` is `pandas`, `arrow` (a pyarrow table) or `polars`. Raises QueryError for invalid SQL,
    one that does more than read, or one that takes longer than 30 s.
    """
    return query_frame(sql, [open_run(run) for run in runs or (None,)], frame)


@with_options(
    PublishOptions,
    _leading_parameter("repo", str | None, None),
    _leading_parameter("run", RunOrFolder, None),
)
def publish(repo: str | None = None, run: RunOrFolder = None, **keywords: Any) -> Path | str:
    """Publish a run or a checkpoint on the Hub, or all sets of an experiment (`experiment`,
    `prefix`). Return its address as text, of an experiment that of the card.

    With `dry_run=True` nothing is sent, and the Path of the written folder is returned. The error
    that stopped an experiment's uploads is raised; the same call uploads what is missing.
    """
    values = {"repo": repo, **_with_folders(keywords)}
    if run is not None:
        values["run"] = open_run(run).path
    options = options_of(PublishOptions, values)
    if options.experiment is not None:
        published = publish_experiment(options)
        if published.stopped is not None:
            raise published.stopped
        return published.uploaded.url if published.uploaded else Path(str(published.folder))
    _, done = publish_target(options)
    if done.uploaded is not None:
        return done.uploaded.url
    return done.dataset.folder if isinstance(done, PublishedDataset) else done.folder


@with_options(PullOptions, _leading_parameter("repo", str))
def pull(repo: str, **keywords: Any) -> Run:
    """Restore a published run from the Hub, make it the newest run, and return it.

    Raises HubError if it cannot be had, RunError if the folder is taken.
    """
    options = options_of(PullOptions, {"repo": repo, **keywords})
    return open_run(pull_run(options).run.path)


@with_options(ImportOptions, _leading_parameter("file", str | os.PathLike[str]))
def import_logs(file: str | os.PathLike[str], **keywords: Any) -> Run:
    """Return a new run with conversations and rewards that were logged elsewhere; notes become
    warnings.

    Raises ConvbenchError subclasses for a file that cannot be read as such.
    """
    options = options_of(ImportOptions, {"file": os.fspath(file), **keywords})
    done = import_run(options.file, options.run, options.plan)
    _warn_notes(done.notes)
    assert done.run is not None
    return open_run(done.run.path)


def _with_folders(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords with runs and checkpoints replaced by their folders."""
    return {
        key: value.path if isinstance(value, Run | Checkpoint) else value
        for key, value in keywords.items()
    }


def _warn_notes(notes: Iterable[str]) -> None:
    for text in notes:
        warnings.warn(text, stacklevel=3)


def _raise_or_warn(done: BuildSummary | JudgeSummary, calls: CallOptions, what: str) -> None:
    """Raise the error that stopped a build or a judge, or one for too many failures; warn about
    fewer failures."""
    if line := check_outcome(done.jobs, calls, what, done.failures):
        warnings.warn(line, stacklevel=3)
