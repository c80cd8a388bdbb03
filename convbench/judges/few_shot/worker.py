"""The process that tries edits on its own device: `python -m convbench.judges.few_shot.worker
WEIGHTS`, with the protocol of `adaptation.worker`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from convbench.judges.few_shot.settings import FewShotSettings
from convbench.judges.few_shot.solve import Problem, Solver, Trial
from convbench.tasks.arc_agi.edit import SelfEdit

if TYPE_CHECKING:
    from convbench.judges.adaptation.learner import Learner

MODULE = "convbench.judges.few_shot.worker"
TRIAL, PROBLEM, EDIT = TypeAdapter(Trial), TypeAdapter(Problem), TypeAdapter(SelfEdit)


def line_of(
    problem: Problem, edit: SelfEdit | None, before: Trial | None, settings: FewShotSettings
) -> dict[str, Any]:
    """Return the request for one trial as JSON data with the keys `problem`, `edit`, `before` and
    `settings`; `edit` and `before` may be None. See `Solver.try_edit` for their meaning."""
    return {
        "problem": asdict(problem),
        "edit": None if edit is None else EDIT.dump_python(edit, mode="json"),
        "before": None if before is None else asdict(before),
        "settings": settings.model_dump(mode="json"),
    }


def try_line(learner: Learner, request: dict[str, Any]) -> dict[str, Any]:
    """Return the trial of one request of `line_of` as a dict of the fields of `Trial`."""
    solver = Solver(learner, FewShotSettings.model_validate(request["settings"]))
    problem, edit, before = (
        PROBLEM.validate_python(request["problem"]),
        request["edit"],
        request["before"],
    )
    return asdict(
        solver.try_edit(
            problem,
            None if edit is None else EDIT.validate_python(edit),
            None if before is None else TRIAL.validate_python(before),
        )
    )


if __name__ == "__main__":
    from convbench.judges.adaptation.worker import serve_lines

    serve_lines(try_line)
