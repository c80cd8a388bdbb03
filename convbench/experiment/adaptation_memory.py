"""Whether the adaptations of an experiment's judges fit a card; arithmetic alone."""

from __future__ import annotations

from convbench.experiment.preflight import PreflightFindings
from convbench.judge.adaptation.runner import settings_of
from convbench.judge.adaptation.settings import InnerSettings
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import Judge
from convbench.learn.placement import Machine, format_gb, this_machine
from convbench.models.devices import missing_devices
from convbench.models.weights_path import ModelShape, shape_of
from convbench.options.shared import CallOptions, parse_devices
from convbench.rollout.calls import device_placement

HELD_BYTES, TRAINED_BYTES = 2, 18
"""Least bytes a weight of an adaptation on an accelerator: the frozen weights in bf16, and with
`tuning: full` a float32 copy beside them with its gradient and two moments."""


def check_adaptations(findings: PreflightFindings, calls: CallOptions) -> None:
    """Add to the findings each judge whose adaptations certainly do not fit one card; their learner
    is on one card, however many there are. Without cards nothing is added, nor for a judge whose
    devices are not there."""
    if "judge" in missing_devices(parse_devices(calls.devices)):
        return
    placed_at = device_placement(calls, "judge")
    machine = this_machine(None if placed_at is None else placed_at.names)
    if not machine.card_bytes:
        return
    is_pretrained = any(recipe.args.get("pretraining") for recipe in findings.recipes.values())
    for (task, name), judge in findings.judges.items():
        if kind_of(judge.spec).measures != "adaptations":
            continue
        settings = settings_of(judge)
        own = {"args.inner": settings.inner}
        if is_pretrained:
            values = {**settings.inner.model_dump(), **settings.pretraining}
            own["args.pretraining"] = InnerSettings.model_validate(values)
        for shape in _learner_shapes(findings, task, judge):
            for where, inner in own.items():
                text = _excess_text(shape, inner, machine)
                if text is not None:
                    findings.add_missing(f"{where}: {text}", f"judge {name}")


def _learner_shapes(findings: PreflightFindings, task: str, judge: Judge) -> set[ModelShape]:
    """Return the known shapes of the models that learn: the judge's own, or the cells' policies."""
    models = {settings_of(judge).learner}
    if models == {None}:
        manifests = (inputs.manifest for inputs in findings.cells.values())
        cast = [m.cast[m.protocol.policy] for m in manifests if m.task.name == task]
        models = {policy.weights or policy.model for policy in cast}
    shapes = (shape_of(model) for model in models if model)
    return {shape for shape in shapes if shape is not None}


def _excess_text(shape: ModelShape, inner: InnerSettings, machine: Machine) -> str | None:
    """Return what an adaptation takes if that is more than a card has, else None."""
    each = TRAINED_BYTES if inner.tuning == "full" else HELD_BYTES
    needed = each * shape.weight_count
    if needed <= machine.card_bytes:
        return None
    return (
        f"an adaptation with tuning {inner.tuning} takes at least {format_gb(needed)} GB of one "
        f"card; found {format_gb(machine.card_bytes)} GB; expected tuning lora, a smaller learner, "
        "or a larger card"
    )
