"""Whether the engines of an experiment's steps fit this machine's cards; arithmetic alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convbench.errors import ConvbenchError
from convbench.experiments.cells import PlannedStep, model_reference
from convbench.experiments.preflight import PreflightFindings
from convbench.experiments.scheduler import cards_of_step, models_of_step, options_per_device
from convbench.models.devices import missing_devices
from convbench.models.side_by_side import (
    CONTEXT,
    ENGINES,
    Engine,
    describe_side_by_side,
    place_side_by_side,
)
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, parse_devices
from convbench.rollout.calls import device_placement, most_tokens
from convbench.schema.run import Role


def check_engines(
    findings: PreflightFindings, plan: Sequence[PlannedStep], options: ExperimentOptions
) -> None:
    """Add to the findings each step with engines that this machine's cards do not hold, alone or
    at the same time, and a note on where those of the other steps stand. A checkpoint counts as the
    model that it starts from. Nothing is added where devices are named that are not there."""
    if missing_devices(parse_devices(options.calls.devices)):
        return
    cards = cards_of_step(plan, options)
    for planned in plan:
        for roles in (("policy", "teacher"), ("judge",)):
            try:
                line = _describe_engines(findings, planned, roles, options, cards)
            except ConvbenchError as error:
                step = planned.step
                who = step.cell.name if step.kind == "build" else step.address
                findings.add_missing(str(error), who)
            else:
                findings.notes.update({line: None} if line else {})


def _describe_engines(
    findings: PreflightFindings,
    planned: PlannedStep,
    roles: Sequence[Role],
    options: ExperimentOptions,
    cards: int,
) -> str | None:
    """Return a line on where the engines of these roles stand in a step; None if there are none.
    Raises FatalModelError if they do not fit."""
    place_side_by_side(list(_step_engines(findings, planned, roles, options, options.calls)))
    placed = options_per_device(planned, options, cards)[0].calls
    engines = list(_step_engines(findings, planned, roles, options, placed))
    return describe_side_by_side(engines, place_side_by_side(engines)) if engines else None


def _step_engines(
    findings: PreflightFindings,
    planned: PlannedStep,
    roles: Sequence[Role],
    options: ExperimentOptions,
    calls: CallOptions,
) -> Iterator[Engine]:
    """Yield the engines of these roles in a step, with the devices of `calls`."""
    step, inputs = planned.step, findings.cells.get(planned.step.cell.name)
    tokens = CONTEXT if inputs is None else most_tokens(inputs.manifest)
    models = models_of_step(planned, options)
    models["judge"] = {
        judge.model
        for (task, name), judge in findings.judges.items()
        if task == step.cell.task and name in planned.spec.judges
        if step.kind in ("judge", "eval") and judge.model and judge.spec.api_base is None
    }
    if planned.spec.teacher is not None and "policy" in models:
        teacher = model_reference(planned.spec.teacher, options.specs.folders)
        is_checkpoint = step.kind == "eval" and not step.policy
        models["teacher"] = {teacher} if is_checkpoint else {teacher} - models["policy"]
    if calls.api_base is not None and step.kind == "build":
        models.pop("policy", None)  # a server of the user's
    for role in roles:
        for ref in sorted(models.get(role, ())):
            if ref.partition(":")[0] in ENGINES:
                limit = CONTEXT if role == "judge" else tokens
                yield Engine(ref, device_placement(calls, role), limit)
