"""`demo`: the whole loop on the embedded tiny world, with words on what happens and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from convbench import catalog
from convbench.commands.build import build
from convbench.commands.judge import judge
from convbench.commands.publish import publish
from convbench.commands.report import ReportResult, report
from convbench.experiment.evaluate import check_evaluation, evaluate
from convbench.learn.start import train_once, trainable
from convbench.options.build import BuildOptions
from convbench.options.demo import DemoOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.report import ReportOptions
from convbench.options.shared import Shape, SpecOptions
from convbench.options.specs import as_sets
from convbench.options.train import TrainOptions
from convbench.rollout.calls import check_outcome
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run

SETTINGS = "pocket"
"""The experiment whose settings the demo takes."""

Say = Callable[[str, str], None]
"""Gets a step's title and why it is done."""


@dataclass
class DemoResult:
    """What the demo made."""

    run: Run
    report: ReportResult
    folder: Path
    """The folder that `publish` would send."""
    checkpoints: list[Path] = field(default_factory=list)


def demo(options: DemoOptions, say: Say) -> DemoResult:
    """Build, judge, train, evaluate, report, and lay out the dataset. Steps done are skipped.

    Raises ConvbenchError subclasses, KeyboardInterrupt.
    """
    spec = catalog.load(ExperimentSpec, "experiments", SETTINGS)
    for name in options.learners:
        trainable(_training(name, options, spec))
    run = _built(options, spec, say)
    say(
        "judge",
        "The judge `rules` scores every conversation from the gold letter and visible features: "
        "right, reasoned, tags closed. Its overall score is the reward.",
    )
    for judged in judge(JudgeOptions(spec.judges, run.path, calls=options.calls)).judged:
        check_outcome(judged.jobs, options.calls, f"verdicts of {judged.name}", judged.failures)
    checkpoints = [_learnt(name, run, options, spec, say) for name in options.learners]
    say("report", "The same test questions, the same judge: what did each policy gain?")
    reported = report(ReportOptions((run.path,)))
    laid = publish("me/pocket-demo", run, dry_run=True, folder=run.path / "publish").laid
    return DemoResult(run, reported, laid.folder, checkpoints)


def _built(options: DemoOptions, spec: ExperimentSpec, say: Say) -> Run:
    count = options.count * 3
    say(
        "build",
        f"A tiny language model (1 million weights, `local:pocket`) talks about {options.count} "
        f"questions over three turns, three times each: {count} conversations. Sometimes it "
        "reasons with care, sometimes it guesses.",
    )
    made = BuildOptions(run=options.run, calls=options.calls)
    if not (options.run / "run.json").exists():
        made = BuildOptions(
            task=spec.tasks[0],
            tasks=options.count,
            shape=Shape(mode="thinking", max_tokens=spec.max_tokens),
            model=spec.model,
            run=options.run,
            calls=options.calls,
        )
    built = build(made)
    assert built.built is not None
    check_outcome(built.built.jobs, options.calls, "conversations", built.built.failures)
    return Run.open(options.run)


def _learnt(name: str, run: Run, options: DemoOptions, spec: ExperimentSpec, say: Say) -> Path:
    """Train one learner and evaluate it; return its checkpoint."""
    why = {
        "swift": "SWiFt weighs every conversation by how much better it was than the others "
        "about the same question; worse ones push away. Watch log_pi_negative fall: the log "
        "probability of the worse ones.",
        "star-gate": "STaR-GATE imitates only the best conversation about each question.",
    }
    say(f"train {name}", why.get(name, ""))
    folder = train_once(_training(name, options, spec), run.checkpoints / name)
    say(f"eval {name}", "The new policy answers the test questions, which it was not trained on.")
    done = evaluate(EvalOptions(str(folder), (run.path,), calls=options.calls))
    check_evaluation(done, options.calls)
    return folder


def _training(name: str, options: DemoOptions, spec: ExperimentSpec) -> TrainOptions:
    return TrainOptions(
        recipe=name, run=(options.run,), judge=spec.judges[0],
        specs=SpecOptions(sets=as_sets(spec.sets_of(name))), in_process=True,
    )  # fmt: skip
