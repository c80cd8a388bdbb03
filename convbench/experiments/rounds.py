"""Run several rounds of a recipe: log, reward, fit, then log again with the trained policy.

Recipes with new questions each round draw train questions that no round has used yet: 50 passages a
round in Zweiger et al. 2025 (SEAL), knowledge incorporation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from convbench import catalog
from convbench.engine.session import Session
from convbench.errors import DataError, RunError, SpecError
from convbench.experiments.evaluate import check_evaluation, evaluate_policy, splits_of
from convbench.experiments.training import check_trainable, samples_first, train_once
from convbench.judges.ready import check_ready
from convbench.judges.resolve import Judge
from convbench.judges.run import judge_with, judge_with_model, judges_of
from convbench.learn.train import split_sets
from convbench.options.evaluate import EvalOptions
from convbench.options.train import RoundsOptions, TrainOptions
from convbench.rollout.build import build_missing
from convbench.rollout.calls import (
    JOURNAL_FILE,
    SCRIPT,
    check_cast,
    check_outcome,
    limit_spend,
)
from convbench.rollout.manifest import copy_reasoning, follow_up_manifest, make_model_config
from convbench.schema import Example, ModelConfig
from convbench.schema.recipe import Recipe
from convbench.store import Run, find_run
from convbench.store.checkpoint import Checkpoint
from convbench.store.locks import folder_lock
from convbench.tasks.draw import format_counts, question_words, refuse_untested
from convbench.tasks.load import load_examples


@dataclass
class RoundResult:
    """One round: its run, its checkpoint, and the checkpoint's evaluation."""

    number: int
    run: Run
    checkpoint: Path
    evaluated: Run | None = None


@dataclass
class RoundsResult:
    """Result of all rounds."""

    run: Run
    judge: str
    rounds: list[RoundResult] = field(default_factory=list)


def run_rounds(options: RoundsOptions, session: Session | None = None) -> RoundsResult:
    """Run or resume the rounds and return their results; what is on disk is not done again.

    Round 1 learns from the options' run. Every later round builds the same train questions, or new
    ones with the recipe's `fresh`, with the policy of the previous round, in `RUN/rounds/RECIPE/N`,
    has the same judge score them, and trains on from that policy. With `evaluate` every policy is
    evaluated in `RUN/evals/RECIPE-round-N`. Raise ConvbenchError, RunError if another process has
    the run.
    """
    count = options.rounds or rounds_recipe(options).rounds
    if count is None:
        raise SpecError(f"recipe {options.recipe}: found no `rounds`; expected --rounds N")
    root = find_root(options)
    with folder_lock(root.path, "going through rounds on this run", name=".rounds.lock"):
        return _run_rounds(root, count, options, session or Session())


def _run_rounds(root: Run, count: int, options: RoundsOptions, session: Session) -> RoundsResult:
    """Run the rounds while the run is locked."""
    limit_spend(session, options.calls, *sorted(root.path.rglob(JOURNAL_FILE)))
    judge, session = judge_of(root, options, session)
    if not _is_finished(root, count, options):
        _check_rounds(root, judge, options, session)
        if count > 1 and rounds_recipe(options).fresh:
            unseen_examples(root, (), count - 1)  # raises now if the source has too few
    result = RoundsResult(root, judge.name)
    run, earlier = root, list[Run]()
    for number in range(1, count + 1):
        score_run(run, judge, options, session)
        done = RoundResult(number, run, _train_round(run, judge, options, session, earlier))
        result.rounds.append(done)
        if options.evaluate:
            done.evaluated = evaluate_round(root, done, judge, options, session)
        earlier.append(run)
        if number < count:
            run = log_round(root, done.checkpoint, number + 1, options, session)
    return result


def find_root(options: RoundsOptions) -> Run:
    """Return the run to start from: the named one, or the one that `runs/latest` points to.

    That is the run last built, resumed, imported or pulled here. Raise RunError if there is none,
    DataError if it has no train questions, or no test questions although rounds are evaluated.
    """
    root = find_run(options.run)
    split_counts = splits_of(root)
    if options.evaluate:
        refuse_untested(root.path, split_counts)
    if not split_counts["train"]:
        raise DataError(
            f"{root.path}: found no question of split train ({format_counts(split_counts)}); "
            "expected some to "
            "learn from. Build a run that has them, e.g. with --set task.sample.split=fraction"
        )
    return root


def rounds_recipe(options: RoundsOptions) -> Recipe:
    """Return the recipe of the rounds."""
    return catalog.load_spec(
        Recipe,
        "recipes",
        options.recipe,
        specs=options.specs.folders,
        sets=split_sets(options.specs.sets)[0],
    )


def _is_finished(root: Run, count: int, options: RoundsOptions) -> bool:
    """Return True if the last round was trained and evaluated."""
    stem = options.learner_name
    last = root.path if count == 1 else round_folder(root, stem, count)
    child = root.evals_folder / f"{stem}-round-{count}" / "run.json"
    trained = Checkpoint(last / "checkpoints" / stem).is_finished
    return trained and (child.exists() or not options.evaluate)


def _check_rounds(root: Run, judge: Judge, options: RoundsOptions, session: Session) -> None:
    """Raise ConvbenchError if a round would lack a speaker, the judge, a package or weights."""
    old = root.manifest
    # Later rounds have the trained policy, so the present one need not be available.
    others = {**old.cast, old.protocol.policy: ModelConfig(model=SCRIPT)}
    check_cast(Run(root.path, old.model_copy(update={"cast": others})), options.calls, session)
    check_ready([judge], options.calls, session, root)
    training, policy = _training_options(root, judge, options), old.cast[old.protocol.policy]
    recipe = check_trainable(training, policy)
    if recipe.replay and recipe.data.mix:
        raise SpecError("replay: found data.mix too; expected only one of them")
    if recipe.replay and samples_first(recipe):
        raise SpecError(
            f"replay: found {recipe.replay:g} for {recipe.name}, which samples or trains something "
            "of its own round first; expected 0"
        )


def judge_of(root: Run, options: RoundsOptions, session: Session) -> tuple[Judge, Session]:
    """Return (the judge that rewards, the session).

    It is the named judge, else the only one with verdicts in the run, else the task's own; a judge
    of the run is taken as stored with it. The model of a named judge that is not stored counts as
    named by the user in the returned session. Raise RunError if there is no such judge.
    """
    known = {judge.name: judge for judge in judges_of(root)}
    name = options.judge or (next(iter(known)) if len(known) == 1 else root.manifest.task.judge)
    if name is None:
        raise RunError(
            f"{root.path}: found {'verdicts of ' + ', '.join(known) if known else 'no judge'}; "
            "expected one judge that rewards; add --judge NAME"
        )
    if name in known:
        return known[name], session
    named_judge = judge_with_model(name, replace(options.specs, sets=()), options.calls, root)
    named = named_judge.model if options.judge else None  # else it is the task's own
    return named_judge, session.naming(named)


def score_run(run: Run, judge: Judge, options: RoundsOptions, session: Session) -> None:
    """Have the judge score what it has not scored. Raises what stopped it, or RunError if too much
    failed."""
    calls = options.calls
    for judged in judge_with(run, [judge], calls, session).summaries:
        check_outcome(judged.jobs, calls, f"verdicts of {judge.name}", judged.failures)


def _train_round(
    run: Run, judge: Judge, options: RoundsOptions, session: Session, earlier: Sequence[Run]
) -> Path:
    """Return the round's checkpoint, and train it first if it does not exist."""
    training = with_replay(
        _training_options(run, judge, options), rounds_recipe(options).replay, run, earlier
    )
    return train_once(training, run.checkpoints_folder / options.learner_name, session)


def with_replay(
    training: TrainOptions, share: float, run: Run, earlier: Sequence[Run]
) -> TrainOptions:
    """Return the options of a round's training with the logs of earlier rounds mixed in by
    `data.mix`.

    Earlier logs make up this share of its conversations, or all of them are taken if they have
    fewer. Return the options unchanged for a share of 0 or without earlier runs.
    """
    if not share or not earlier:
        return training
    earlier_count = sum(map(_count_logged, earlier))
    mix = min(1.0, _count_logged(run) * share / (1 - share) / max(earlier_count, 1))
    shares = [1.0, *(round(mix, 4) for _ in earlier)]
    specs = replace(training.specs, sets=(*training.specs.sets, f"data.mix={shares}"))
    return replace(
        training, run=(run.path, *(earlier_run.path for earlier_run in earlier)), specs=specs
    )


def _count_logged(run: Run) -> int:
    """Return the number of conversations about train questions in a run, without failed ones."""
    train = {name for name, example in run.examples.items() if example.split == "train"}
    return sum(
        conversation.example_id in train and conversation.failure is None
        for conversation in run.conversations()
    )


def _training_options(run: Run, judge: Judge, options: RoundsOptions) -> TrainOptions:
    return TrainOptions(
        recipe=options.recipe,
        run=(run.path,),
        judge=judge.name,
        specs=options.specs,
        calls=options.calls,
        in_process=options.in_process,
    )


def evaluate_round(
    root: Run, done: RoundResult, judge: Judge, options: RoundsOptions, session: Session
) -> Run:
    """Build and judge a round's policy on the test split; return the child run."""
    name = f"{options.learner_name}-round-{done.number}"
    evaluation = EvalOptions(
        str(done.checkpoint),
        (root.path,),
        name,
        specs=replace(options.specs, sets=()),
        calls=options.calls,
    )
    result = evaluate_policy(evaluation, session)
    check_evaluation(result, options.calls)
    score_run(result.run, judge, options, session)
    return result.run


def log_round(
    root: Run, policy: Path, number: int, options: RoundsOptions, session: Session
) -> Run:
    """Build or resume the run of a later round, with the new policy, in its folder, and return it.

    Raise what stopped the build, or RunError if too many conversations failed.
    """
    path = round_folder(root, options.learner_name, number)
    if (path / "run.json").exists():
        run = Run.open(path)
    else:
        run = _create_round(root, policy, path, options, examples_of(root, number, options))
    policy_reference = run.manifest.cast[run.manifest.protocol.policy].model  # trained here
    built = build_missing(run, options.calls, session.naming(policy_reference))
    check_outcome(built.jobs, options.calls, "conversations", built.failures)
    return run


def round_folder(root: Run, recipe: str, number: int) -> Path:
    """Return the folder of a recipe's later round: `RUN/rounds/RECIPE/N`, or `RUN/rounds/N` of an
    older version if its run's checkpoint is this recipe's."""
    older = root.path / "rounds" / str(number)
    if (older / "run.json").exists():
        policy = Run.open(older).manifest.checkpoint
        if policy is not None and Path(policy).name == recipe:
            return older
    return root.path / "rounds" / recipe / str(number)


def examples_of(root: Run, number: int, options: RoundsOptions) -> list[Example]:
    """Return the questions of a later round's run: the root's, or with `fresh` new ones to train on
    and the root's other ones."""
    if not rounds_recipe(options).fresh:
        return list(root.examples.values())
    seen = [
        Run.open(round_folder(root, options.learner_name, earlier)) for earlier in range(2, number)
    ]
    held = [example for example in root.examples.values() if example.split != "train"]
    return [*unseen_examples(root, seen), *held]


def _create_round(
    root: Run, policy: Path, path: Path, options: RoundsOptions, examples: list[Example]
) -> Run:
    root_manifest = root.manifest
    limit = root_manifest.cast[root_manifest.protocol.policy].sampling.max_tokens
    member = make_model_config(str(policy), limit, None, options.specs)
    member = copy_reasoning(member, root_manifest.cast[root_manifest.protocol.policy])
    cast = {**root_manifest.cast, root_manifest.protocol.policy: member}
    manifest = follow_up_manifest(root_manifest, cast, checkpoint=str(policy))
    return Run.create(path, manifest, examples)


def unseen_examples(root: Run, seen: Iterable[Run], rounds: int = 1) -> list[Example]:
    """Return train questions for so many more rounds, as many for each as the root has, in the
    order of the draw. None shares its group or its text with a question of the root (test questions
    included) or of a run in `seen`. Raises DataError if the task's source has too few."""
    manifest = root.manifest
    used = [example for run in (root, *seen) for example in run.examples.values()]
    groups, words = {e.group_id for e in used}, {question_words(e) for e in used}
    per_round = sum(example.split == "train" for example in root.examples.values())
    sample = manifest.task.sample.model_copy(update={"count": "all"})
    task = manifest.task.model_copy(update={"sample": sample})
    loaded = load_examples(task, manifest.seed, downloaded=manifest.pulled_from is not None)
    examples = [
        example
        for example in loaded.examples
        if example.split == "train"
        and example.group_id not in groups
        and question_words(example) not in words
    ]
    if len(examples) < per_round * rounds:
        raise DataError(
            f"{root.path}: found {len(examples)} more train questions in task "
            f"{manifest.task.name}; "
            f"expected {per_round * rounds}, {per_round} for each later round (fresh: true). "
            "Build fewer "
            "with --tasks N, or let all rounds learn from the same: --set fresh=false"
        )
    return examples[: per_round * rounds]
