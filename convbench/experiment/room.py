"""Check that disk and memory suffice for an experiment's least needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from convbench.experiment.cells import PlannedStep
from convbench.experiment.estimate import ResourceEstimate, count_weights
from convbench.experiment.preflight import PreflightFindings
from convbench.models.devices import list_devices
from convbench.schema.recipe import Recipe

GB = 1e9
FULL_BYTES, ADAPTER_BYTES = 8, 2
"""Least bytes a weight of a training: all weights in bf16 with gradients and AdamW's two moments,
or the frozen weights under an adapter."""


def check_disk_and_memory(
    findings: PreflightFindings, plan: Sequence[PlannedStep], root: Path, amount: ResourceEstimate
) -> None:
    """Add missing disk space, write access or memory to the findings."""
    folder = next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if amount.disk > free:
        findings.add_missing(
            f"disk: at least {amount.disk / GB:,.1f} GB for runs and checkpoints; {folder} has "
            f"{free / GB:,.1f} GB free; expected more: take another folder with --run DIR, or do "
            "a part with --only CELL",
            "the experiment",
        )
    if not os.access(folder, os.W_OK):
        findings.add_missing(
            f"{folder}: cannot be written to; take another folder with --run DIR", "the experiment"
        )
    available = total_memory()
    for planned in plan:
        recipe = findings.recipes.get((planned.step.address, planned.spec.name))
        least = _least_memory(findings, planned, recipe) if recipe else 0
        if least > available:
            findings.add_missing(
                f"memory: training takes at least {least / GB:,.1f} GB; this machine and its "
                f"accelerators have {available / GB:,.1f} GB; train an adapter: --set "
                "recipe_sets.all.lora.r=16, or take a machine with more",
                planned.step.address,
            )


def _least_memory(findings: PreflightFindings, planned: PlannedStep, recipe: Recipe) -> int:
    """Return the least bytes of memory that a training takes; 0 if the model's size is unknown."""
    manifest = (
        findings.cells[planned.step.cell.name].manifest
        if planned.step.cell.name in findings.cells
        else None
    )
    if manifest is None:
        return 0
    policy = manifest.cast[manifest.protocol.policy]
    size = count_weights(recipe.model or policy.weights or policy.model) or 0
    adapted = recipe.lora is not None and recipe.distil is None
    return size * (ADAPTER_BYTES if adapted else FULL_BYTES)


def total_memory() -> int:
    """Return the bytes of memory of this machine and its accelerators."""
    machine_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return machine_memory + sum(device.memory for device in list_devices())
