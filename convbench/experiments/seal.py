"""Run SEAL: rounds in which self-edits are rewarded by what they teach, and their baselines.

Zweiger et al. 2025 (SEAL): sample edits, keep the good ones, fit, repeat (ReST-EM).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from convbench import catalog
from convbench.engine.session import Session
from convbench.errors import RunError
from convbench.experiments.evaluate import check_evaluation, evaluate_policy
from convbench.experiments.rounds import RoundsResult, find_root, rounds_recipe, run_rounds
from convbench.experiments.seal_report import write_seal_report
from convbench.judges.adaptation import passages
from convbench.judges.adaptation.accuracies import (
    NOTHING,
    PASSAGE,
    UNTRAINED,
    Values,
    edit_accuracies,
    learner_fingerprints,
)
from convbench.judges.adaptation.passages import ForgettingSequence
from convbench.judges.adaptation.runner import AdaptationRunner, LearnerRef, settings_of
from convbench.judges.adaptation.verdict import with_runner
from convbench.judges.few_shot.baselines import baseline_values
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.judges.run import is_for_rewards_only, judges_of
from convbench.options.evaluate import EvalOptions
from convbench.options.train import RoundsOptions
from convbench.schema.base import FrozenModel
from convbench.schema.recipe import Recipe
from convbench.store import Run


class SealArgs(FrozenModel):
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
    forgetting: dict[str, list[ForgettingSequence]] = field(default_factory=dict)
    """Accuracies over sequences of passages learnt one after the other, by training data."""
    label: str = ""
    """Label of the learner, in the names of its table's files."""


def run_seal(
    options: RoundsOptions, session: Session | None = None, *, baselines: bool = True
) -> SealResult:
    """Run or resume SEAL's rounds on a run of self-edits, and return what they taught.

    It resumes from any point, down to a single adaptation. `taught` is empty unless the judge
    measures adaptations or solutions; `pretrained` and `forgetting` are empty (`many_passages`
    fills them). Without `baselines` only the edits of the untrained policy and of the rounds are
    measured. Raise ConvbenchError.
    """
    recipe = rounds_recipe(options)
    args = seal_args(recipe)
    root = find_root(options)
    _check_length(root, args)
    session = session or Session()
    done = run_rounds(options, session)
    result = SealResult(done, label=options.label)
    judge = next(j for j in judges_of(done.run) if j.name == done.judge)
    if kind_of(judge.spec).measures in ("adaptations", "solutions"):
        if baselines:
            for model in args.others:
                evaluate_edits_of(model, done.run, options, session)
        result.taught = taught_accuracies(done, judge, options, session, baselines)
    return result


@dataclass(frozen=True)
class RoundsWithTable:
    """Results of several rounds, and the file of their table."""

    result: SealResult
    table: Path | None
    """The file with the accuracies after learning from self-edits; None for other recipes."""


def train_rounds(
    options: RoundsOptions, session: Session | None = None, *, baselines: bool = True
) -> RoundsWithTable:
    """Run a recipe's rounds and return the results with the path of their table.

    A recipe with a filter of self-edits runs as SEAL; its table is written before the long
    measurements of many passages, and again after. For other recipes, or if nothing was measured,
    the table is None and the measurements are empty.
    """
    session = session or Session()
    if rounds_recipe(options).filter is None:
        return RoundsWithTable(SealResult(run_rounds(options, session)), None)
    result = run_seal(options, session, baselines=baselines)
    if not result.taught:
        return RoundsWithTable(result, None)
    write_table(result)
    many_passages(result, options, session)
    return RoundsWithTable(result, write_table(result))


def write_table(result: SealResult) -> Path:
    """Write the measurements so far to `self-edits.json` and `seal.md` in the run's reports
    (`self-edits-LABEL.json`, `seal-LABEL.md` with a label); return the path of the latter."""
    reports = result.rounds.run.reports_folder
    return write_seal_report(
        reports, result.taught, result.pretrained, result.forgetting, result.label
    )


def _check_length(run: Run, args: SealArgs) -> None:
    """Raise RunError if sequences are longer than the number of test passages, before hours of
    work."""
    available = sum(example.split == "test" for example in run.examples.values())
    if args.sequences and available < args.length:
        raise RunError(
            f"{run.path}: found {available} passages of split test; expected {args.length} for a "
            f"sequence; shorter ones: --set args.length={available}"
        )


def seal_args(recipe: Recipe) -> SealArgs:
    """Return the recipe's `args` as settings for SEAL. Raises SpecError if they are wrong."""
    return catalog.check_spec(SealArgs, dict(recipe.args), f"recipe {recipe.name}: args")


def evaluate_edits_of(model: str, root: Run, options: RoundsOptions, session: Session) -> None:
    """Evaluate another model as the writer of self-edits of the test passages, from which the run's
    policy learns.

    The edits are written as an evaluation of the run. Raise ConvbenchError if it was stopped or too
    much failed.
    """
    specs = replace(options.specs, sets=())
    asked = EvalOptions(model, (root.path,), specs=specs, calls=options.calls)
    done = evaluate_policy(asked, session)
    check_evaluation(done, options.calls)


def taught_accuracies(
    done: RoundsResult,
    judge: Judge,
    options: RoundsOptions,
    session: Session,
    baselines: bool = True,
) -> dict[str, Values]:
    """Return (passage, accuracy) of every adaptation by training data, as lists in a dict.

    Keys are `nothing`, `passage only`, `untrained self-edits`, `self-edits of NAME` for each other
    model that was evaluated on this run with the same learner, and `round N`. Without `baselines`
    only the untrained self-edits and the rounds are there. Those without answers about test
    passages are left out.
    """
    table = _baseline_values(done.run, judge, options, session) if baselines else {}
    own_learners = learner_fingerprints(done.run, judge)
    rounds = [(f"round {each.number}", each.evaluated) for each in done.rounds if each.evaluated]
    others = _other_writers(done, judge) if baselines and own_learners else []
    table |= {
        name: edit_accuracies(run, judge) for name, run in [(UNTRAINED, done.run), *others, *rounds]
    }
    return {name: values for name, values in table.items() if values}


def _other_writers(done: RoundsResult, judge: Judge) -> list[tuple[str, Run]]:
    """Return (name, run) of each other model whose edits of the test passages the run's own policy
    learnt. Evaluations of a recipe's checkpoints, such as another learner's rounds, are left out.
    """
    own_learners = learner_fingerprints(done.run, judge)
    rounds = {each.evaluated.path for each in done.rounds if each.evaluated}
    return [
        (f"self-edits of {child.path.name}", child)
        for child in done.run.child_runs()
        if child.path not in rounds
        and "recipe" not in child.manifest.extra
        and _learners(child, judge) == own_learners
    ]


def _learners(child: Run, judge: Judge) -> set[str]:
    """Return the fingerprints of the weights that learn an evaluation's edits: those that did, or
    where they are learnt all at once, those that will."""
    if not is_for_rewards_only(judge):
        return learner_fingerprints(child, judge)
    return {LearnerRef.of_run(child, settings_of(judge).learner).fingerprint}


def _baseline_values(
    run: Run, judge: Judge, options: RoundsOptions, session: Session
) -> dict[str, Values]:
    if kind_of(judge.spec).measures == "solutions":
        return baseline_values(run, judge)
    return with_runner(run, judge, options.calls, session, baseline_accuracies)


def baseline_accuracies(runner: AdaptationRunner) -> dict[str, Values]:
    """Return (passage, accuracy) lists over the test passages, by training data.

    Keys are `nothing`, the policy as it is, and `passage only`, after training on the passage
    itself, unless only train edits are learnt alone.
    """
    examples = [example for example in runner.run.examples.values() if example.split == "test"]
    nothing = runner.spread_work(lambda e: (e.group_id, runner.unadapted_accuracy(e)), examples)
    if runner.settings.train_only:
        return {NOTHING: nothing}
    alone = runner.spread_work(
        lambda e: (e.group_id, runner.edit_outcome(e, None).accuracy), examples
    )
    return {NOTHING: nothing, PASSAGE: alone}


def many_passages(result: SealResult, options: RoundsOptions, session: Session) -> None:
    """Measure learning of many passages and set the result's `pretrained` and `forgetting`.

    `pretrained` is of all passages at once, `forgetting` of one after the other; each is measured
    only if the recipe's `args` ask for it. Keys are `passage only`, `untrained self-edits` and the
    last round, if it was evaluated.
    """
    args = seal_args(rounds_recipe(options))
    run, calls, last = result.rounds.run, options.calls, result.rounds.rounds[-1]
    judge = next(j for j in judges_of(run) if j.name == result.rounds.judge)
    sources = [(PASSAGE, run, True), (UNTRAINED, run, False)]
    if last.evaluated is not None:
        sources.append((f"round {last.number}", last.evaluated, False))
    if args.pretraining:
        others = [
            (name, child, False)
            for name, child in _other_writers(result.rounds, judge)
            if name in result.taught or is_for_rewards_only(judge)
        ]
        result.pretrained = {
            name: passages.pretraining_accuracies(
                run, judge, calls, session, edits=args.pretraining, alone=alone
            )
            for name, run, alone in (*sources[:2], *others, *sources[2:])
        }
    if args.sequences:
        result.forgetting = {
            name: passages.measure_forgetting(
                run,
                judge,
                calls,
                session,
                sequences=args.sequences,
                length=args.length,
                alone=alone,
            )
            for name, run, alone in sources
        }
