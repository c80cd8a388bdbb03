"""Several rounds of a recipe: log, reward, fit, then log again with the policy that came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from convbench.commands.adaptation import adapted
from convbench.commands.build import have
from convbench.commands.calls import CallOptions
from convbench.commands.cast import make_member
from convbench.commands.evaluate import EvalOptions, evaluate
from convbench.commands.judge import JudgeOptions, JudgeResult, judge_with, judges_of
from convbench.commands.judge import judge as judge_command
from convbench.commands.manifest import Shape, make_manifest
from convbench.commands.specs import SpecOptions
from convbench.commands.train import TrainOptions, train
from convbench.engine import run as run_loop
from convbench.errors import RunError
from convbench.judge import Judge, resolve_judge
from convbench.store import Run, find_run


@dataclass(frozen=True)
class RoundsOptions:
    """What a user asks of `train RECIPE --rounds N`."""

    recipe: str
    rounds: int = 2
    run: Path | None = None
    """The first round's run, built with the policy to start from."""
    judge: str | None = None
    """Whose verdicts are the reward; None takes the run's only judge, or the task's."""
    evaluate: bool = True
    """Evaluate every round's policy on the test split."""
    in_process: bool = False
    specs: SpecOptions = SpecOptions()
    calls: CallOptions = CallOptions()


@dataclass
class Round:
    """One round: what it was logged in, what came out, how that did."""

    number: int
    run: Run
    checkpoint: Path
    evaluated: Run | None = None


@dataclass
class RoundsResult:
    """All rounds."""

    run: Run
    judge: str
    rounds: list[Round] = field(default_factory=list)


def rounds(options: RoundsOptions) -> RoundsResult:
    """Run the rounds, or go on where they stopped: what is on disk is not done again.

    Round 1 learns from the run given. Every later round builds the same train questions with the
    policy of the round before, in `RUN/rounds/N`, lets the same judge score them, and trains on
    from that policy. Every policy is evaluated in `RUN/evals/RECIPE-round-N`.
    """
    root = find_run(options.run)
    judge = judge_of(root, options)
    result = RoundsResult(root, judge.name)
    run = root
    for number in range(1, options.rounds + 1):
        score(run, [judge], options.calls)
        done = Round(number, run, _trained(run, judge, options))
        result.rounds.append(done)
        if options.evaluate:
            done.evaluated = evaluated(root, done, judge, options)
        if number < options.rounds:
            run = logged_again(root, done.checkpoint, number + 1, options)
    return result


def judge_of(root: Run, options: RoundsOptions) -> Judge:
    """Return the judge that rewards: the run's own as it kept it, or the one asked for."""
    known = {judge.name: judge for judge in judges_of(root)}
    name = options.judge or (next(iter(known)) if len(known) == 1 else root.manifest.task.judge)
    if name is None:
        raise RunError(
            f"{root.path}: found {'verdicts of ' + ', '.join(known) if known else 'no judge'}; "
            "expected one judge that rewards; add --judge NAME"
        )
    if name in known:
        return known[name]
    found = resolve_judge(name, options.specs.folders)
    if found.spec.kind == "adaptation":
        return found
    plain = replace(options.specs, sets=())
    judge_command(JudgeOptions((name,), root.path, specs=plain, calls=options.calls))
    return next(judge for judge in judges_of(root) if judge.name == name)


def score(run: Run, judges: Sequence[Judge], calls: CallOptions) -> None:
    """Let the judges score what they have not scored, and stop where that was stopped."""
    for judge in judges:
        if judge.spec.kind == "adaptation":
            with run.lock():
                judged = [run_loop(partial(adapted, run, judge, calls))]
        else:
            result: JudgeResult = judge_with(run, [judge], calls)
            judged = result.judged
        for one in judged:
            if one.jobs.interrupted:
                raise KeyboardInterrupt
            if one.jobs.stopped is not None:
                raise one.jobs.stopped


def _trained(run: Run, judge: Judge, options: RoundsOptions) -> Path:
    """Return the round's checkpoint, trained now where it is not there."""
    folder = run.checkpoints / Path(options.recipe).stem
    if not (folder / "training.json").exists():
        train(
            TrainOptions(
                recipe=options.recipe,
                run=run.path,
                judge=judge.name,
                out=folder,
                specs=options.specs,
                in_process=options.in_process,
            )
        )
    return folder


def evaluated(root: Run, done: Round, judge: Judge, options: RoundsOptions) -> Run:
    """Return the child run of a round's policy on the test split, built and judged."""
    name = f"{Path(options.recipe).stem}-round-{done.number}"
    asked = EvalOptions(
        str(done.checkpoint), root.path, name, specs=replace(options.specs, sets=()),
        calls=options.calls,
    )  # fmt: skip
    child = evaluate(asked).run
    score(child, [judge], options.calls)
    return child


def logged_again(root: Run, policy: Path, number: int, options: RoundsOptions) -> Run:
    """Return the run of a later round: the root's train questions asked of a new policy."""
    path = root.path / "rounds" / str(number)
    run = Run.open(path) if (path / "run.json").exists() else _new(root, policy, path, options)
    built = have(run, options.calls)
    if built.jobs.interrupted:
        raise KeyboardInterrupt
    if built.jobs.stopped is not None:
        raise built.jobs.stopped
    return run


def _new(root: Run, policy: Path, path: Path, options: RoundsOptions) -> Run:
    old = root.manifest
    limit = old.cast[old.protocol.policy].sampling.max_tokens
    member = make_member(str(policy), limit, None, options.specs)
    shape = Shape(
        mode=old.mode,
        turns=old.turns,
        samples=old.samples,
        temperatures=old.temperatures,
        seed=old.seed,
        split="train",
    )
    manifest = make_manifest(
        old.task, old.protocol, shape, {**old.cast, old.protocol.policy: member},
        parent=old.id, checkpoint=str(policy), source_revision=old.source_revision,
    )  # fmt: skip
    return Run.create(path, manifest, list(root.examples.values()))
