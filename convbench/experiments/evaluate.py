"""Evaluate a policy: build a child run on the test split, and score it with the parent's judges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convbench.engine.session import Session
from convbench.errors import ConvbenchError, RunError, SpecError, UsageError
from convbench.judges.ready import check_ready
from convbench.judges.resolve import Judge
from convbench.judges.run import JudgeResult, judge_with, judges_of
from convbench.models.vllm import find_interpreter
from convbench.models.weights_path import folder_of, weights_fingerprint, without_latest
from convbench.options.evaluate import EvalOptions
from convbench.options.shared import CallOptions
from convbench.options.specs import load_plugins, load_protocol, sort_sets
from convbench.prompts import refuse_absent_choices
from convbench.rollout.build import BuildSummary, build_missing, missing_jobs
from convbench.rollout.calls import SCRIPT, check_cast, check_outcome
from convbench.rollout.manifest import (
    copy_reasoning,
    follow_up_manifest,
    make_model_config,
    refuse_changes,
    taught_speakers,
)
from convbench.rollout.preview import Preview, preview_build
from convbench.schema import Example, ModelConfig, ProtocolSpec, RunManifest
from convbench.schema.run import EVALUATION
from convbench.schema.task import Split
from convbench.store import Run, find_run
from convbench.store.checkpoint import Checkpoint
from convbench.tasks.draw import count_splits, refuse_untested

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(?<!\.yaml)(?<!\.yml)")


@dataclass
class EvalResult:
    """Result of `eval` on one run."""

    run: Run
    parent: Run
    built: BuildSummary
    judged: JudgeResult | None
    """The judges' results; None if the parent has no verdicts, so that no judge is known. In a dry
    run: what the judges would be sent."""
    preview: Preview | None = None
    """In a dry run: what the policy would be sent."""
    problem: ConvbenchError | None = None
    """In a dry run: the error that the evaluation itself would raise, or None."""


def evaluate_each(options: EvalOptions, session: Session | None = None) -> Iterator[EvalResult]:
    """Yield the evaluation of each run when it is done, in order; without runs, that of the
    checkpoint's own run, else of the newest.

    All runs are opened before the first is evaluated, at the first step of the iteration. Raise
    ConvbenchError, UsageError if a run comes twice.
    """
    session = session or Session()
    runs = [find_run(path).path.resolve() for path in options.run]
    for path, folder in zip(options.run, runs, strict=True):
        if runs.count(folder) > 1:
            raise UsageError(f"--run {path}: found it twice; expected each run once")
    for parent in options.run or (None,):
        yield evaluate_policy(replace(options, run=() if parent is None else (parent,)), session)


def evaluate_policy(options: EvalOptions, session: Session | None = None) -> EvalResult:
    """Build the parent's test questions (or those of `options.split`) with this policy, have the
    same judges score them, and return the result.

    The teacher stays the parent's. The child run is written to the parent's `evals` folder, or
    resumed. If the build was interrupted or stopped, nothing is judged and `judged` is None. A dry
    run writes nothing and returns previews with the error that would be raised. Raise
    ConvbenchError; failed conversations raise nothing here (`check_evaluation`).
    """
    load_plugins(options.specs)
    options = replace(options, policy=without_latest(options.policy))
    folder = folder_of(options.policy)
    parent = _parent_run(options, folder)
    if parent.manifest.kind == "import":
        raise RunError(
            f"{parent.path}: holds imported conversations, which have no protocol to evaluate in; "
            "name a run that was built with --run DIR"
        )
    refuse_untested(parent.path, splits_of(parent), options.split)
    protocol = _eval_protocol(parent, folder, options)
    options = replace(options, policy=_with_parents_engine(parent, folder, options))
    manifest = evaluation_manifest(parent, protocol, parent.examples.values(), options)
    calls = options.calls
    session = (session or Session()).naming(manifest.cast[protocol.policy].model)
    judges = judges_of(parent)
    child = _child_run(parent, manifest, options)
    if options.dry_run:
        return _preview_evaluation(parent, child, judges, calls, session)
    _refuse_unready(parent, child, judges, calls, session)
    if not on_disk(child):
        child = Run.create(child.path, child.manifest, list(parent.examples.values()))
    built = build_missing(child, calls, session)
    if built.jobs.interrupted or built.jobs.stopped:
        return EvalResult(child, parent, built, None)
    judged = judge_with(child, judges, calls, session) if judges else None
    return EvalResult(child, parent, built, judged)


def _preview_evaluation(
    parent: Run, child: Run, judges: Sequence[Judge], calls: CallOptions, session: Session
) -> EvalResult:
    """Return what an evaluation would send; nothing is written."""
    from convbench.judges.preview import preview_unbuilt

    shown = preview_build(
        child.manifest, parent.examples.values(), specs=calls.specs, batch=calls.batch
    )
    previews = [preview_unbuilt(judge, child.manifest, shown, calls) for judge in judges]
    judged = JudgeResult(child, previews=previews) if judges else None
    result = EvalResult(child, parent, BuildSummary(), judged, shown)
    result.problem = _what_stops(parent, child, judges, calls, session)
    return result


def _what_stops(
    parent: Run, child: Run, judges: Sequence[Judge], calls: CallOptions, session: Session
) -> ConvbenchError | None:
    """Return the error that would stop an evaluation, or None."""
    try:
        _refuse_unready(parent, child, judges, calls, session)
    except ConvbenchError as error:
        return error
    return None


def _refuse_unready(
    parent: Run, child: Run, judges: Sequence[Judge], calls: CallOptions, session: Session
) -> None:
    """Raise ConvbenchError if calls are left and the policy or a judge could not be asked."""
    if not on_disk(child) or any(missing_jobs(child)):
        check_cast(child, calls, session)
        check_ready(judges, calls, session, parent)


def check_evaluation(done: EvalResult, calls: CallOptions) -> list[str]:
    """Return a line for the conversations and for each judge's verdicts of which some failed, e.g.

    `2 of 40 conversations failed`.

    The list is empty without failures. Raise what ended the evaluation early, or RunError if too
    many failed.
    """
    notes = [check_outcome(done.built.jobs, calls, "conversations", done.built.failures)]
    for judged in done.judged.summaries if done.judged else ():
        notes.append(
            check_outcome(judged.jobs, calls, f"verdicts of {judged.name}", judged.failures)
        )
    return [note for note in notes if note]


def splits_of(run: Run) -> dict[Split, int]:
    """Return the number of a run's questions in each split, with all three splits as keys."""
    return count_splits(example.split for example in run.examples.values())


def _parent_run(options: EvalOptions, folder: Path) -> Run:
    """Return the run to evaluate on: the named one, the one that contains the checkpoint or trained
    it, or the newest."""
    if options.first_run is not None or not folder.is_dir():
        return find_run(options.first_run)
    inside = folder.resolve().parent.parent
    if (inside / "run.json").exists():
        return Run.open(inside)
    trained = folder / str(Checkpoint(folder).recipe.get("run"))
    return Run.open(trained.resolve()) if (trained / "run.json").exists() else find_run(None)


def _eval_protocol(parent: Run, folder: Path, options: EvalOptions) -> ProtocolSpec:
    """Return the named protocol, else the recipe's for evaluation, else the parent's own."""
    name = options.protocol
    if name is None:
        name = _recipe_protocol(folder)
    if name is None or name == parent.manifest.protocol.name:
        return parent.manifest.protocol
    return load_protocol(name, options.specs, sort_sets(options.specs.sets, ("protocol",)))


def _recipe_protocol(folder: Path) -> str | None:
    """Return the protocol that a checkpoint's recipe names, or None. Raises RunError if it names a
    file: the maker of a checkpoint must not choose files that are read here."""
    name = Checkpoint(folder).recipe.get("eval_protocol")
    if name is not None and not _NAME.fullmatch(str(name)):
        raise RunError(
            f"{folder / 'recipe.yaml'}: eval_protocol: found {str(name)[:80]!r}; expected a "
            "protocol's name; to evaluate in one of a file, add --protocol FILE"
        )
    return name


def evaluation_manifest(
    parent: Run, protocol: ProtocolSpec, examples: Iterable[Example], options: EvalOptions
) -> RunManifest:
    """Return the manifest of the run in which a policy answers the questions of a parent run, which
    need not be on disk yet: `examples` are its questions. Raises ConvbenchError."""
    parent_manifest = parent.manifest
    limit = parent_manifest.cast[parent_manifest.protocol.policy].sampling.max_tokens
    cast = {
        name: parent_manifest.cast.get(name, ModelConfig(model=SCRIPT))
        for name in protocol.speakers
        if name != protocol.policy
    }
    silent = [name for name in taught_speakers(protocol) if cast[name].model == SCRIPT]
    if silent:
        raise SpecError(
            f"protocol {protocol.name}: speaker {silent[0]!r} needs a model, and the cast of "
            f"{parent.path} has none for it; build a run in that protocol and evaluate there"
        )
    refuse_absent_choices(parent_manifest.task, protocol, parent_manifest.mode, examples)
    member = make_model_config(options.policy, limit, options.calls.api_base, options.specs)
    if member.model.startswith("vllm:"):
        mark = weights_fingerprint(folder_of(member.model))
        member = member.model_copy(update={"fingerprint": mark})
    cast[protocol.policy] = copy_reasoning(
        member, parent_manifest.cast[parent_manifest.protocol.policy]
    )
    return follow_up_manifest(
        parent_manifest,
        cast,
        split=options.split,
        protocol=protocol,
        kind="eval",
        checkpoint=options.policy,
        extra=_recipe_extra(options.policy),
    )


def _with_parents_engine(parent: Run, folder: Path, options: EvalOptions) -> str:
    """Return the policy's reference, `vllm:FOLDER` for a folder of weights if vLLM sampled the
    parent's policy and can run here: lines of one table are then sampled by one engine.

    An evaluation that exists keeps its engine.
    """
    policy, path = options.policy, _child_path(parent, options)
    if (path / "run.json").exists():
        manifest = Run.open(path).manifest
        engine = manifest.cast[manifest.protocol.policy].model
    else:
        manifest = parent.manifest
        engine = manifest.cast[manifest.protocol.policy].model
        if find_interpreter() is None:
            return policy
    named = policy != str(folder) or options.calls.api_base is not None
    is_served = engine.startswith("vllm:") and not named and folder.is_dir()
    return f"vllm:{policy}" if is_served else policy


def _recipe_extra(policy: str) -> dict[str, Any]:
    """Return the recipe's fields that a report needs, in case the checkpoint is deleted by then."""
    recipe = Checkpoint(folder_of(policy)).recipe
    excerpt = {
        key: recipe[key]
        for key in ("name", "label", "eval_protocol", "data", "args")
        if key in recipe
    }
    return {"recipe": excerpt} if excerpt else {}


def on_disk(run: Run) -> bool:
    """Return True if the run is on disk."""
    return (run.path / "run.json").exists()


def evaluation_name(policy: str) -> str:
    """Return the default folder name of a policy's evaluation: its checkpoint's, or its model's."""
    folder = folder_of(policy)
    name = folder.resolve().name if folder.is_dir() else policy
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def _child_run(parent: Run, manifest: RunManifest, options: EvalOptions) -> Run:
    """Return the child run, new (not on disk yet) or to be resumed. Raises RunError if its settings
    changed."""
    path = _child_path(parent, options)
    if not (path / "run.json").exists():
        named = {**manifest.extra, EVALUATION: path.name}
        return Run(path, manifest.model_copy(update={"extra": named}))
    child = Run.open(path)
    try:
        refuse_changes(child.manifest, manifest)
    except RunError as error:
        raise RunError(f"{path}: {error}; or give this evaluation a name: --name NAME") from None
    return child


def _child_path(parent: Run, options: EvalOptions) -> Path:
    """Return the folder of an evaluation: `evals/NAME` of its parent, by default the policy's."""
    return parent.evals_folder / (options.name or evaluation_name(options.policy))
