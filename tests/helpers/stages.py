"""The stages as tests call them, so that a room can move without its callers in tests.

Keywords are those of the Python API. No progress is shown unless a test asks for it. What the API
has no verb for is one public function.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import convbench
from convbench.api.signature import options_of
from convbench.engine.session import Session
from convbench.experiments.evaluate import EvalResult, evaluate_policy
from convbench.experiments.experiment import ExperimentResult, run_experiment
from convbench.experiments.results import create_report
from convbench.experiments.run import ProgressListener
from convbench.experiments.seal import RoundsWithTable
from convbench.experiments.train import run_train
from convbench.hub.dataset import PublishedDataset, publish_dataset
from convbench.judges.command import judge_run
from convbench.judges.run import JudgeResult
from convbench.learn.train import TrainResult
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.experiment import ExperimentOptions
from convbench.options.judge import JudgeOptions
from convbench.options.report import ReportOptions
from convbench.options.train import TrainOptions
from convbench.reports.report import ReportResult
from convbench.rollout.build import BuildResult, build_or_resume
from convbench.store import Run


def build(task: str | None = None, *, quiet: bool = True, **keywords: Any) -> Run:
    """Build a run, or resume the one that `run` names.

    Raises what ended it early, and RunError if more failed than `fail_on` allows.
    """
    return Run.open(convbench.build(task, quiet=quiet, **keywords).path)


def build_result(
    task: str | None = None, *, quiet: bool = True, session: Session | None = None, **keywords: Any
) -> BuildResult:
    """The same, and what the API does not tell: counts, failures, the preview of a dry run; what it
    cost is in the session's ledger.

    What ended it early is told, not raised.
    """
    values = {"task": task, "quiet": quiet, **keywords}
    return build_or_resume(options_of(BuildOptions, values), session)


def judge(run: Path, *judges: str, quiet: bool = True, **keywords: Any) -> Run:
    """Score what these judges have not scored of a run and of its evaluations; without judges, the
    task's own scores."""
    return Run.open(convbench.judge(run, *judges, quiet=quiet, **keywords).path)


def judge_result(run: Path, *judges: str, quiet: bool = True, **keywords: Any) -> JudgeResult:
    """Judge the run itself: counts, failures, agreement, comparisons, the previews of a dry run."""
    values = {"run": run, "judge": judges, "quiet": quiet, **keywords}
    return judge_run(options_of(JudgeOptions, values))


def train(
    recipe: str,
    run: Path | tuple[Path, ...] = (),
    *,
    in_process: bool = False,
    quiet: bool = True,
    **keywords: Any,
) -> TrainResult:
    """Train a recipe once; `path` is the checkpoint, a dry run has a `preview`.

    With `in_process` torch stays loaded in this process for the next training.
    """
    done = _train(recipe, run, in_process, quiet, keywords)
    assert isinstance(done, TrainResult)
    return done


def train_rounds(
    recipe: str, run: Path, *, in_process: bool = False, quiet: bool = True, **keywords: Any
) -> RoundsWithTable:
    """Train a recipe in `rounds`."""
    done = _train(recipe, run, in_process, quiet, keywords)
    assert isinstance(done, RoundsWithTable)
    return done


def _train(
    recipe: str, run: Path | tuple[Path, ...], in_process: bool, quiet: bool, more: dict[str, Any]
) -> TrainResult | RoundsWithTable:
    options = options_of(TrainOptions, {"recipe": recipe, "run": run, "quiet": quiet, **more})
    return run_train(replace(options, in_process=in_process))


def evaluate(policy: str, run: Path | None = None, *, quiet: bool = True, **keywords: Any) -> Run:
    """Evaluate a checkpoint or a model on a run's test questions; the child run."""
    return Run.open(convbench.eval(policy, run, quiet=quiet, **keywords).path)


def evaluate_result(policy: str, run: Path, *, quiet: bool = True, **keywords: Any) -> EvalResult:
    """The same, and what its judges did; of a dry run what stands in its way."""
    values = {"policy": policy, "run": run, "quiet": quiet, **keywords}
    return evaluate_policy(options_of(EvalOptions, values))


def report(*runs: Path, **keywords: Any) -> ReportResult:
    """Compare policies of runs: the `document` and its settings."""
    return create_report(options_of(ReportOptions, {"runs": runs, **keywords}))


def experiment(
    name: str,
    *,
    quiet: bool = True,
    tell: ProgressListener | None = None,
    session: Session | None = None,
    **keywords: Any,
) -> ExperimentResult:
    """Run an experiment in the folder `run`, or plan it with `dry_run`; the same call resumes."""
    values = {"name": name, "quiet": quiet, **keywords}
    return run_experiment(options_of(ExperimentOptions, values), tell, session=session)


def publish(run: Run, repo: str, **keywords: Any) -> PublishedDataset:
    """Write the folder of a published set, and send nothing."""
    return publish_dataset(run, repo, dry_run=True, **keywords).dataset


def import_logs(file: Path, run: Path, **keywords: Any) -> Run:
    """Make a run of conversations that were logged elsewhere."""
    return Run.open(convbench.import_logs(file, run=run, **keywords).path)


def pull(repo: str, run: Path, **keywords: Any) -> Run:
    """Restore a published run from the Hub."""
    return Run.open(convbench.pull(repo, run=run, **keywords).path)
