"""Check that disk and memory suffice for an experiment's least needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from convbench.experiment.cells import Part
from convbench.experiment.estimate import Amount, weights_of
from convbench.experiment.preflight import Preflight
from convbench.models.devices import inventory
from convbench.schema.recipe import Recipe

GB = 1e9
WHOLE, ADAPTED = 8, 2
"""Least bytes a weight of a training: all weights in bf16 with gradients and AdamW's two moments,
or the frozen weights under an adapter."""


def check_room(found: Preflight, parts: Sequence[Part], root: Path, amount: Amount) -> None:
    """Add missing disk space, write access or memory to the findings."""
    place = next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if amount.disk > free:
        found.lacks(
            f"disk: at least {amount.disk / GB:,.1f} GB for runs and checkpoints; {place} has "
            f"{free / GB:,.1f} GB free; expected more: take another folder with --run DIR, or do "
            "a part with --only CELL",
            "the experiment",
        )
    if not os.access(place, os.W_OK):
        found.lacks(
            f"{place}: cannot be written to; take another folder with --run DIR", "the experiment"
        )
    there = memory()
    for one in parts:
        recipe = found.recipes.get((one.step.address, one.spec.name))
        least = _least(found, one, recipe) if recipe else 0
        if least > there:
            found.lacks(
                f"memory: training takes at least {least / GB:,.1f} GB; this machine and its "
                f"accelerators have {there / GB:,.1f} GB; train an adapter: --set "
                "recipe_sets.all.lora.r=16, or take a machine with more",
                one.step.address,
            )


def _least(found: Preflight, one: Part, recipe: Recipe) -> int:
    """Return the least bytes of memory that a training takes; 0 if the model's size is unknown."""
    manifest = (
        found.cells[one.step.cell.name].manifest if one.step.cell.name in found.cells else None
    )
    if manifest is None:
        return 0
    policy = manifest.cast[manifest.protocol.policy]
    size = weights_of(recipe.model or policy.weights or policy.model) or 0
    adapted = recipe.lora is not None and recipe.distil is None
    return size * (ADAPTED if adapted else WHOLE)


def memory() -> int:
    """Return the bytes of memory of this machine and its accelerators."""
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return own + sum(device.memory for device in inventory())
