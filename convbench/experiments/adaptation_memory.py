"""Whether the adaptations of an experiment's judges fit a card; arithmetic alone."""

from __future__ import annotations

from convbench.experiments.preflight import PreflightFindings
from convbench.judges.adaptation.runner import inner_settings_of, settings_of
from convbench.judges.adaptation.settings import InnerSettings
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.learn.memory import MemoryParts, StepRows, step_memory
from convbench.learn.placement import Machine, format_gb, this_machine
from convbench.learn.shapes import ModelShape, shape_of
from convbench.models.devices import missing_devices
from convbench.options.shared import CallOptions, parse_devices
from convbench.rollout.calls import device_placement

ADAPTERS, OFFLOADED, ON_DEVICE = 2, 6, 22
"""Least bytes a weight of an adaptation on an accelerator: the frozen weights in bf16; with
`tuning: full` also a copy and its gradient in bf16; or a float32 copy with two gradients and two
moments."""


def check_adaptations(findings: PreflightFindings, calls: CallOptions) -> None:
    """Add to the findings each judge whose adaptations certainly do not fit one card; their learner
    is on one card, however many there are. For the others a note says what they take at most.
    Without cards nothing is added, nor for a judge whose devices are not there."""
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
            own["args.pretraining"] = inner_settings_of(judge, "pretraining")
        for shape in _learner_shapes(findings, task, judge):
            for where, inner in own.items():
                chosen = _chosen_settings(shape, inner, machine)
                parts = _most_memory(shape, chosen)
                text = _excess_text(shape, chosen, parts, machine)
                if text is not None:
                    findings.add_missing(f"{where}: {text}", f"judge {name}")
                else:
                    line = f"judge {name}, {where}: {_most_text(chosen, parts, machine)}"
                    findings.notes[line] = None


def _learner_shapes(findings: PreflightFindings, task: str, judge: Judge) -> set[ModelShape]:
    """Return the known shapes of the models that learn: the judge's own, or the cells' policies."""
    models = {settings_of(judge).learner}
    if models == {None}:
        manifests = (inputs.manifest for inputs in findings.cells.values())
        cast = [m.cast[m.protocol.policy] for m in manifests if m.task.name == task]
        models = {policy.weights or policy.model for policy in cast}
    shapes = (shape_of(model) for model in models if model)
    return {shape for shape in shapes if shape is not None}


def _excess_text(
    shape: ModelShape, chosen: InnerSettings, parts: MemoryParts, machine: Machine
) -> str | None:
    """Return what an adaptation takes if that is more than there is, else None."""
    each = ADAPTERS
    if chosen.tuning == "full":
        each = ON_DEVICE if chosen.offload == "none" else OFFLOADED
    card = each * shape.weight_count
    if card > machine.card_bytes:
        return (
            f"an adaptation with tuning {chosen.tuning} takes at least {format_gb(card)} GB of one "
            f"card; found {format_gb(machine.card_bytes)} GB; expected tuning lora, a smaller "
            "learner, or a larger card"
        )
    if chosen.offload == "cpu" and parts.host > machine.host_bytes:
        return (
            f"an adaptation with tuning full takes {format_gb(parts.host)} GB of host memory where "
            f"the card has no room for its moments; found {format_gb(machine.host_bytes)} GB; "
            "expected tuning lora, a smaller learner, or more memory"
        )
    return None


def _most_text(chosen: InnerSettings, parts: MemoryParts, machine: Machine) -> str:
    """Return what an adaptation takes at most, with texts of the greatest length."""
    text = (
        f"an adaptation takes at most {format_gb(parts.total)} GB of "
        f"{format_gb(machine.card_bytes)} a card"
    )
    if chosen.offload != "cpu":
        return text
    return (
        f"{text}, and {format_gb(parts.host)} GB of host memory for all weights and their moments"
    )


def _chosen_settings(shape: ModelShape, inner: InnerSettings, machine: Machine) -> InnerSettings:
    """Return the settings with the offload that a training would choose on a card."""
    if inner.tuning != "full" or inner.offload != "auto":
        return inner
    on_device = inner.model_copy(update={"offload": "none"})
    if _most_memory(shape, on_device).total <= machine.card_bytes:
        return on_device
    return inner.model_copy(update={"offload": "cpu"})


def _most_memory(shape: ModelShape, inner: InnerSettings) -> MemoryParts:
    rows = StepRows(inner.seeds_at_once * inner.batch_size, inner.max_length, inner.max_length)
    return step_memory("pretraining", shape, inner, rows)
