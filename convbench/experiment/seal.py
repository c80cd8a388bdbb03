"""Run SEAL: rounds in which self-edits are rewarded by what they teach, and their baselines.

Zweiger et al. 2025 (SEAL): sample edits, keep the good ones, fit, repeat (ReST-EM).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from convbench import catalog
from convbench.errors import RunError
from convbench.experiment.evaluate import check_evaluation, evaluate
from convbench.experiment.rounds import RoundsResult, ready, recipe_of, rounds
from convbench.judge.adaptation import passages
from convbench.judge.adaptation.accuracies import (
    NOTHING,
    PASSAGE,
    UNTRAINED,
    Values,
    accuracies,
    learners,
)
from convbench.judge.adaptation.passages import Forgetting
from convbench.judge.adaptation.runner import Runner
from convbench.judge.adaptation.verdict import with_runner
from convbench.judge.all import judges_of
from convbench.judge.few_shot.baselines import baselines as solved_beside
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import Judge
from convbench.learn.export import with_filter
from convbench.options.evaluate import EvalOptions
from convbench.options.train import RoundsOptions
from convbench.report import adaptation
from convbench.rollout.calls import share_ledger
from convbench.schema.noun import Noun
from convbench.schema.recipe import Recipe
from convbench.store import Run


class Args(Noun):
    """`args` of SEAL's recipe: what is measured in addition to the rounds."""

    others: tuple[str, ...] = ()
    """Models whose edits of the test passages the untrained policy learns too, as a baseline."""
    pretraining: int = Field(default=0, ge=0)
    """Edits a passage for continued pre-training on all test passages at once; 0 leaves it out."""
    sequences: int = Field(default=0, ge=0)
    """Sequences of continual self-edits; 0 leaves them out."""
    length: int = Field(default=8, ge=2)
    """Test passages of one sequence."""


@dataclass
class SealResult:
    """Result of `train seal`."""

    rounds: RoundsResult
    taught: dict[str, Values] = field(default_factory=dict)
    """(passage, accuracy) of every adaptation, by training data."""
    pretrained: dict[str, Values] = field(default_factory=dict)
    """The same for one training on all passages at once."""
    forgetting: dict[str, list[Forgetting]] = field(default_factory=dict)
    """Accuracies over sequences of passages learnt one after the other, by training data."""


def seal(options: RoundsOptions, *, baselines: bool = True) -> SealResult:
    """Run or resume SEAL's rounds on a run of self-edits, and return what they taught.

    It resumes from any point, down to a single adaptation. Raises ConvbenchError.
    """
    recipe = recipe_of(options)
    args = args_of(recipe)
    root = ready(options)
    _long_enough(root, args)
    options = replace(options, calls=share_ledger(options.calls, root.path))
    done = rounds(replace(options, specs=with_filter(options.specs, recipe)))
    result = SealResult(done)
    judge = next(j for j in judges_of(done.run) if j.name == done.judge)
    if kind_of(judge.spec).measures in ("adaptations", "solutions"):
        if baselines:
            for model in args.others:
                learn_from(model, done.run, options)
        result.taught = taught_accuracies(done, judge, options, baselines)
    return result


@dataclass(frozen=True)
class Rounds:
    """Results of several rounds, and the file of their table."""

    result: SealResult
    table: Path | None
    """The file with the accuracies after learning from self-edits; None for other recipes."""


def train_rounds(options: RoundsOptions, *, baselines: bool = True) -> Rounds:
    """Run a recipe's rounds and return the results. A recipe with a filter of self-edits runs as
    SEAL; its table is written before the long measurements of many passages, and again after."""
    if recipe_of(options).filter is None:
        return Rounds(SealResult(rounds(options)), None)
    result = seal(options, baselines=baselines)
    if not result.taught:
        return Rounds(result, None)
    write_table(result)
    many_passages(result, options)
    return Rounds(result, write_table(result))


def write_table(result: SealResult) -> Path:
    """Write the measurements so far into the run's reports; return the table's file."""
    reports = result.rounds.run.reports
    return adaptation.write(reports, result.taught, result.pretrained, result.forgetting)


def _long_enough(run: Run, args: Args) -> None:
    """Raise RunError if sequences are longer than the number of test passages, before hours of
    work."""
    there = sum(example.split == "test" for example in run.examples.values())
    if args.sequences and there < args.length:
        raise RunError(
            f"{run.path}: found {there} passages of split test; expected {args.length} for a "
            f"sequence; shorter ones: --set args.length={there}"
        )


def args_of(recipe: Recipe) -> Args:
    """Return the recipe's `args` as settings for SEAL. Raises SpecError if they are wrong."""
    return catalog.check(Args, dict(recipe.args), f"recipe {recipe.name}: args")


def learn_from(model: str, root: Run, options: RoundsOptions) -> None:
    """Evaluate another model as the writer of self-edits of the test passages, from which the run's
    policy learns."""
    plain = replace(options.specs, sets=())
    done = evaluate(EvalOptions(model, (root.path,), specs=plain, calls=options.calls))
    check_evaluation(done, options.calls)


def taught_accuracies(
    done: RoundsResult, judge: Judge, options: RoundsOptions, baselines: bool = True
) -> dict[str, Values]:
    """Return accuracies by training data: nothing, the passage only, edits of the untrained policy,
    of other models evaluated on this run and learnt by the same policy, and of every round. Those
    without answers about test passages are left out."""
    found = _baselines(done.run, judge, options) if baselines else {}
    own = learners(done.run, judge)
    rounds = [(f"round {one.number}", one.evaluated) for one in done.rounds if one.evaluated]
    children = done.run.children() if baselines and own else []
    others = [
        (f"self-edits of {child.path.name}", child)
        for child in children
        if learners(child, judge) == own and child.path not in {run.path for _, run in rounds}
    ]
    found |= {
        name: accuracies(run, judge) for name, run in [(UNTRAINED, done.run), *others, *rounds]
    }
    return {name: values for name, values in found.items() if values}


def _baselines(run: Run, judge: Judge, options: RoundsOptions) -> dict[str, Values]:
    if kind_of(judge.spec).measures == "solutions":
        return solved_beside(run, judge)
    return with_runner(run, judge, options.calls, baseline_accuracies)


def baseline_accuracies(runner: Runner) -> dict[str, Values]:
    """Return accuracies of the policy as it is, and after training on the passage only."""
    asked = [example for example in runner.run.examples.values() if example.split == "test"]
    return {
        NOTHING: runner.spread(lambda e: (e.group_id, runner.before(e)), asked),
        PASSAGE: runner.spread(lambda e: (e.group_id, runner.outcome(e, None).accuracy), asked),
    }


def many_passages(result: SealResult, options: RoundsOptions) -> None:
    """Measure learning of many passages as the recipe's args ask, all at once and one after the
    other, and add it to the result."""
    args = args_of(recipe_of(options))
    run, calls, last = result.rounds.run, options.calls, result.rounds.rounds[-1]
    judge = next(j for j in judges_of(run) if j.name == result.rounds.judge)
    ways = [(PASSAGE, run, True), (UNTRAINED, run, False)]
    if last.evaluated is not None:
        ways.append((f"round {last.number}", last.evaluated, False))
    if args.pretraining:
        result.pretrained = {
            name: passages.pretrained(run, judge, calls, edits=args.pretraining, alone=alone)
            for name, run, alone in ways
        }
    if args.sequences:
        result.forgetting = {
            name: passages.forgetting(
                run, judge, calls, sequences=args.sequences, length=args.length, alone=alone
            )
            for name, run, alone in ways
        }
