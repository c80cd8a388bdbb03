"""Run all stages on the embedded tiny world, with explanations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from convbench import catalog
from convbench.engine.session import Session
from convbench.experiments.evaluate import check_evaluation, evaluate_policy
from convbench.experiments.training import check_trainable, train_once
from convbench.hub.send import publish_as_dataset
from convbench.judges.command import judge_run
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.publish import PublishOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.specs import as_sets
from convbench.options.train import TrainOptions
from convbench.reports.report import ReportResult, make_report
from convbench.rollout.build import build_or_resume
from convbench.rollout.calls import check_outcome
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run

LEARNERS = ("swift", "star-gate")
SETTINGS = "pocket"
"""The experiment whose settings the demo uses."""

Say = Callable[[str, str], None]
"""Called with the title and the explanation of each step."""


@dataclass
class DemoResult:
    """Result of the demo."""

    run: Run
    report: ReportResult
    folder: Path
    """The folder that `publish` would send."""
    checkpoints: list[Path] = field(default_factory=list)


def run_demo(
    folder: Path,
    questions: int,
    calls: CallOptions,
    session: Session,
    say: Say,
    learners: Sequence[str] = LEARNERS,
) -> DemoResult:
    """Build, judge, train, evaluate, report, and write the dataset's folder; return the result.
    Finished steps are skipped.

    Raises ConvbenchError subclasses, KeyboardInterrupt.
    """
    spec = catalog.load_spec(ExperimentSpec, "experiments", SETTINGS)
    for name in learners:
        check_trainable(_training_options(name, folder, spec))
    run = _build_run(folder, questions, calls, session, spec, say)
    say(
        "judge",
        "The judge `rules` scores every conversation from the gold letter and visible features: "
        "right, reasoned, tags closed. Its overall score is the reward.",
    )
    asked = JudgeOptions(spec.judges, run.path, calls=calls)
    for judged in judge_run(asked, session).summaries:
        check_outcome(judged.jobs, calls, f"verdicts of {judged.name}", judged.failures)
    checkpoints = [_train_learner(name, run, calls, session, spec, say) for name in learners]
    say("report", "The same test questions, the same judge: what did each policy gain?")
    reported = make_report([run])
    options = PublishOptions("me/pocket-demo", dry_run=True, folder=run.path / "publish")
    dataset = publish_as_dataset(options, run).dataset
    return DemoResult(run, reported, dataset.folder, checkpoints)


def _build_run(
    folder: Path,
    questions: int,
    calls: CallOptions,
    session: Session,
    spec: ExperimentSpec,
    say: Say,
) -> Run:
    say(
        "build",
        f"A tiny language model (1 million weights, `local:pocket`) talks about {questions} "
        f"questions over three turns, three times each: {questions * 3} conversations. Sometimes "
        "it reasons with care, sometimes it guesses.",
    )
    options = BuildOptions(run=folder, calls=calls)
    if not (folder / "run.json").exists():
        options = BuildOptions(
            task=spec.tasks[0],
            tasks=questions,
            shape=RunSettings(mode="thinking", max_tokens=spec.max_tokens),
            model=spec.model,
            run=folder,
            calls=calls,
        )
    built = build_or_resume(options, session).built
    assert built is not None
    check_outcome(built.jobs, calls, "conversations", built.failures)
    return Run.open(folder)


def _train_learner(
    name: str, run: Run, calls: CallOptions, session: Session, spec: ExperimentSpec, say: Say
) -> Path:
    """Train one learner, evaluate it, and return its checkpoint."""
    why = {
        "swift": "SWiFt weighs every conversation by how much better it was than the others "
        "about the same question; worse ones push away. Watch log_pi_negative fall: the log "
        "probability of the worse ones.",
        "star-gate": "STaR-GATE imitates only the best conversation about each question.",
    }
    say(f"train {name}", why.get(name, ""))
    training = _training_options(name, run.path, spec)
    folder = train_once(training, run.checkpoints_folder / name, session)
    say(f"eval {name}", "The new policy answers the test questions, which it was not trained on.")
    done = evaluate_policy(EvalOptions(str(folder), (run.path,), calls=calls), session)
    check_evaluation(done, calls)
    return folder


def _training_options(name: str, run: Path, spec: ExperimentSpec) -> TrainOptions:
    return TrainOptions(
        recipe=name,
        run=(run,),
        judge=spec.judges[0],
        specs=SpecOptions(sets=as_sets(spec.sets_of(name))),
        in_process=True,
    )
