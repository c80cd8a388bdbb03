"""The command `judge`: the judges that were named, over a run and its evaluations."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from convbench import catalog
from convbench.engine.session import Session
from convbench.errors import FatalModelError, RunError, UsageError
from convbench.judges.kinds import kind_of
from convbench.judges.ready import find_problem
from convbench.judges.resolve import Judge, unquoted_warnings
from convbench.judges.rubrics import rubrics_of_run
from convbench.judges.run import (
    JudgeResult,
    add_controls,
    judge_with,
    judge_with_model,
)
from convbench.models.aliases import SCHEMES, aliases, resolve
from convbench.models.model import no_batches
from convbench.models.open import has_batches
from convbench.models.prices import is_provider
from convbench.options.judge import JudgeOptions
from convbench.options.specs import load_plugins
from convbench.store import Run, find_run

SPEC_FILES = (".yaml", ".yml")
JUDGE_SCHEMES = ("human:", *(f"{scheme}:" for scheme in SCHEMES))


def judge_each(options: JudgeOptions, session: Session | None = None) -> Iterator[JudgeResult]:
    """Judge a run and then its evaluations with the same judges, skipping what they have scored.

    Yield one result for each run, one in all with `pairwise`; end early after a stop.
    Judges that read labels, and controls, apply to the run itself only. Raises ConvbenchError
    subclasses.
    """
    load_plugins(options.specs)
    session = session or Session()
    if options.pairwise:
        yield judge_run(options, session)
        return
    run, judges = _run_and_judges(options)
    yield (result := _score_run(run, judges, options, session))
    others = [item for item in judges if "labels" not in kind_of(item.spec).needs]
    for child in run.child_runs() if others else ():
        if any(item.jobs.interrupted or item.jobs.stopped for item in result.summaries):
            return
        if child.has_completed():
            yield (result := _score_run(child, others, replace(options, controls=False), session))


def judge_run(options: JudgeOptions, session: Session | None = None) -> JudgeResult:
    """Judge every conversation of a run that these judges have not scored, or compare two policies;
    return the result.

    The run's evaluations are not judged (`judge_each`). A dry run returns previews. Verdicts are
    appended one by one, so that a stop loses at most the calls in flight. Raises ConvbenchError
    subclasses.
    """
    load_plugins(options.specs)
    session = session or Session()
    if options.pairwise:
        from convbench.judges.contests import judge_pairwise

        return judge_pairwise(options.pairwise, options, session)
    return _score_run(*_run_and_judges(options), options, session)


def _run_and_judges(options: JudgeOptions) -> tuple[Run, list[Judge]]:
    """Return the run and the judges that the user named, by default the newest and the task's."""
    run = run_to_judge(options)
    _refuse_empty(run)
    judges = [
        judge_with_model(name, options.specs, options.calls, run)
        for name in _judge_names(run, options)
    ]
    for item in judges:
        if item.spec.per == "pair":
            raise RunError(f"--judge {item.name} compares two policies; expected --pairwise A B")
    return run, judges


def run_to_judge(options: JudgeOptions) -> Run:
    """Return the run that the user named, or the newest. Raises UsageError if a judge was named
    instead of a run, RunError if there is no such run."""
    refuse_judge_as_run(str(options.run or ""), options.specs.folders)
    return find_run(options.run)


def refuse_judge_as_run(name: str, specs: Sequence[Path], runs: Sequence[str] = ()) -> None:
    """Raise UsageError if the name of a run is a judge's (`is_judge_name`); else do nothing.

    `runs` are the other names of runs, for the command in the message.
    """
    if is_judge_name(name, specs):
        more = "".join(f" --run {shlex.quote(run)}" for run in runs)
        raise UsageError(
            f"convbench judge {name}: found no such run, but a judge of this name; expected it "
            f"behind --judge: convbench judge --judge {shlex.quote(name)}{more}"
        )


def is_judge_name(name: str, specs: Sequence[Path] = ()) -> bool:
    """Return True if a word names a judge, a spec file or a model, and is no existing path.

    A name that ends in `.yaml` or `.yml` is a judge's even if the path exists.
    """
    if name.endswith(SPEC_FILES):
        return True
    if Path(name).exists():
        return False
    known = {*catalog.spec_files("judges", specs), *aliases(specs).models}
    is_model = "/" in name and is_provider(name.partition("/")[0])
    return name in known or is_model or "@" in name or name.startswith(JUDGE_SCHEMES)


def _score_run(
    run: Run, judges: Sequence[Judge], options: JudgeOptions, session: Session
) -> JudgeResult:
    """Let judges score the conversations of one run that they have not scored, or preview it."""
    _refuse_batch(judges, options)
    calls = options.calls
    session = session.naming(*(item.model for item in judges if options.judges))
    if options.dry_run:
        from convbench.judges.preview import preview_judge

        previews = [preview_judge(run, item, options.calls) for item in judges]
        pending = [
            item
            for item, shown in zip(judges, previews, strict=True)
            if shown.estimate.conversations
        ]
        problem = find_problem(pending, calls, session, run)
        return JudgeResult(
            run,
            previews=previews,
            problem=problem,
            warnings=unquoted_warnings(judges),
        )
    result = judge_with(run, judges, calls, session)
    if options.controls and all(
        not (j.jobs.interrupted or j.jobs.stopped) for j in result.summaries
    ):
        add_controls(result, judges, calls, session)
    return result


def _refuse_batch(judges: Sequence[Judge], options: JudgeOptions) -> None:
    """Raise FatalModelError for `--batch` if no judge's model can be called in batches."""
    models = [judge.model for judge in judges if judge.model is not None]
    folders = options.calls.specs
    if options.calls.batch and not any(has_batches(resolve(ref, specs=folders)) for ref in models):
        raise FatalModelError(no_batches(*(judge.model or judge.name for judge in judges)))


def _refuse_empty(run: Run) -> None:
    """Raise RunError if a run has no completed conversation."""
    if not run.has_completed():
        failed = sum(1 for _ in run.conversation_rows())
        raise RunError(
            f"{run.path}: found no conversation to judge ({failed} failed); build some first: "
            f"convbench build --run {run.path}"
        )


def _judge_names(run: Run, options: JudgeOptions) -> tuple[str, ...]:
    """Return the names of the judges: those of the user, else the task's. Raises RunError if there
    are none."""
    if options.judges:
        return tuple(dict.fromkeys(options.judges))
    task = run.manifest.task
    if task.judge and run.manifest.kind != "import":
        return (task.judge,)
    known = ", ".join(
        {**catalog.spec_files("judges", options.specs.folders), **rubrics_of_run(run)}
    )
    raise RunError(
        f"task {task.name} names no judge; expected --judge NAME: a rubric with a model "
        f"(SPEC@MODEL), human:FILE, or one of {known}; convbench init judge NAME begins one of "
        "yours"
    )
