"""The rubric of a judge model that is named alone, and the rubrics that are stored in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from convbench import catalog
from convbench.errors import ConvbenchError, SpecError
from convbench.judges.kinds import kind_of
from convbench.schema import JudgeSpec, TaskSpec
from convbench.store import Run

PAPER = "rubric"
"""Name of the rubric of section E.3, for multiple-choice questions with a correct answer."""


def rubrics_of_run(run: Run | None) -> Mapping[str, Sequence[JudgeSpec]]:
    """Return the rubrics of a run's judges by name, without their models: each distinct version of
    a name once.

    Judges of pairs, and those that ask no model, are left out. Empty if there are none or no run.
    """
    by_name: dict[str, list[JudgeSpec]] = {}
    for spec in run.judge_specs().values() if run is not None else ():
        if _asks_by_rubric(spec):
            rubric = spec.model_copy(update={"model": None, "api_base": None})
            if run is not None and run.manifest.pulled_from is not None:
                from convbench.store.portable import within_limits

                rubric = within_limits(rubric)
            versions = by_name.setdefault(spec.name, [])
            versions += [rubric] if rubric not in versions else []
    return by_name


def rubric_of_model(
    model: str, task: TaskSpec | None, run: Run | None = None, specs: Sequence[Path] = ()
) -> str:
    """Return the name of the rubric of a model that is named alone.

    That is the rubric that it used in this run before, else the run's only rubric, else the task's,
    if the run has none or has this one. The task's is the one it names, or the paper's (`rubric`)
    for shipped multiple-choice tasks or without a task. Raise SpecError with the known rubrics if
    there is none.
    """
    task = run.manifest.task if run is not None else task
    run_rubrics = rubrics_of_run(run)
    if run is not None and (before := _previous_rubric(model, run)) is not None:
        return before
    own = _rubric_of_task(task, specs)
    if len(run_rubrics) == 1:
        return next(iter(run_rubrics))
    if own is not None and (own in run_rubrics or not run_rubrics):
        return own
    where = f"task {task.name}" if task is not None else "this run"
    why = "has several rubrics" if run_rubrics else "has no rubric"
    known = [f"{name}@{model}" for name in dict.fromkeys([*run_rubrics, *_rubric_names(specs)])]
    raise SpecError(
        f"--judge {model}: {where} {why}; expected one of {', '.join(known)}, or your own "
        "rubric (convbench init judge NAME)"
    )


def _previous_rubric(model: str, run: Run) -> str | None:
    """Return the rubric with which a judge of this name last scored the run; None if none did."""
    specs = run.judge_specs()
    marks = [mark for judge, mark in run.judge_fingerprints() if judge == model and mark in specs]
    return specs[marks[-1]].name if marks else None


def _rubric_of_task(task: TaskSpec | None, specs: Sequence[Path]) -> str | None:
    """Return the rubric that a task names as its judge, else the paper's if its questions are those
    of a shipped multiple-choice task; None for any other task."""
    if task is None:
        return PAPER
    if task.judge is not None:
        try:
            if _asks_by_rubric(catalog.load_spec(JudgeSpec, "judges", task.judge, specs=specs)):
                return task.judge
        except ConvbenchError:  # a run may name a judge that lies elsewhere
            pass
    return PAPER if task.answer.kind == "choice" and _is_shipped(task) else None


def _is_shipped(task: TaskSpec) -> bool:
    """Return whether a task comes with convbench, or has the source of one that does."""
    files = sorted((catalog.shipped_folder() / "tasks").glob("*.yaml"))
    if task.name in (file.stem for file in files):
        return True
    sources = (catalog.load_spec(TaskSpec, "tasks", str(file)).source for file in files)
    own = task.source.hub, task.source.config, task.source.rows
    return any(own) and own in ((source.hub, source.config, source.rows) for source in sources)


def _rubric_names(specs: Sequence[Path]) -> list[str]:
    """Return the names of all rubrics that score conversations."""
    loaded = (
        catalog.load_spec(JudgeSpec, "judges", name, specs=specs)
        for name in catalog.spec_files("judges", specs)
    )
    return [spec.name for spec in loaded if _asks_by_rubric(spec)]


def _asks_by_rubric(spec: JudgeSpec) -> bool:
    return "model" in kind_of(spec).needs and spec.per != "pair"
