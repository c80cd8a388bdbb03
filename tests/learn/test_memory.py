"""Memory: the formula against counted trainings, and the launch that fits."""

from __future__ import annotations

from typing import Any

import pytest

from convbench import catalog
from convbench.learn.memory import Cards, ModelShape, choose_launch, estimate_memory
from convbench.schema.recipe import LaunchSpec, Recipe

GB = 10**9
SHAPES = {
    "135M": ModelShape(134_479_872, 576, 30, 49152),
    "1B": ModelShape(1_235_746_816, 2048, 16, 128256),
    "8B": ModelShape(8_029_995_008, 4096, 32, 128256),
}
COUNTED = {
    ("weighted_sft", "8B"): (19.27, 128.55), ("critic", "8B"): (19.27, 128.55),
    ("distil", "8B"): (58.28, 144.61), ("weighted_sft", "1B"): (3.84, 20.86),
    ("critic", "1B"): (3.84, 20.86), ("distil", "1B"): (15.15, 25.02),
    ("weighted_sft", "135M"): (0.69, 2.34), ("critic", "135M"): (0.69, 2.34),
    ("distil", "135M"): (3.71, 4.77),
}  # fmt: skip
"""GB of the peak that was counted on fake tensors (docs/lab/step-memory.md): (LoRA, full), two
sequences of 2,048 tokens at once, 512 of them with loss, bf16."""


def recipe_of(trainer: str, **values: Any) -> Recipe:
    return Recipe.model_validate({"name": "r", "title": "r", "trainer": trainer, **values})


def launches() -> dict[str, LaunchSpec]:
    names = ("none", "ddp", "zero2", "zero3")
    return {name: catalog.load_spec(LaunchSpec, "launch", name) for name in names}


@pytest.mark.parametrize(("trainer", "size"), COUNTED)
def test_estimate_is_within_a_tenth_of_what_was_counted(trainer: str, size: str) -> None:
    rows = 2 if trainer in ("weighted_sft", "distil") else 1  # a pair is two sequences
    one = launches()["none"]
    for lora, counted in zip(({}, None), COUNTED[trainer, size], strict=True):
        recipe = recipe_of(trainer, lora=lora, fit={"batch_size": rows})
        memory = estimate_memory(SHAPES[size], recipe, one, 2048, 512, True)
        assert memory.peak / GB == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize(
    ("cards", "card_gb", "wanted", "processes", "values"),
    [
        (0, 0, "none", 1, {}),
        (1, 80, "none", 1, {"lora": {"r": 16}}),
        (8, 80, "ddp", 8, {"lora": {"r": 16}}),
        (8, 80, "zero2", 8, {}),
        (8, 40, "zero3", 8, {}),
        (3, 80, "zero2", 2, {"fit": {"batch": 64, "batch_size": 1}}),
    ],
)
def test_choose_launch_takes_the_first_that_fits(
    cards: int, card_gb: int, wanted: str, processes: int, values: dict[str, Any]
) -> None:
    values = {"fit": {"batch": 64, "batch_size": 1}, **values}
    here = Cards(cards, card_gb * GB, 1000 * GB)
    recipe = recipe_of("weighted_sft", **values)
    launch, memory, fits = choose_launch(SHAPES["8B"], recipe, here, launches(), (2048, 512))
    assert (launch.name, launch.process_count) == (wanted, processes)
    assert memory is not None
    assert fits == (memory.fits(here) or not cards)


def test_choose_launch_says_when_nothing_fits() -> None:
    recipe = recipe_of("weighted_sft", fit={"batch_size": 1})
    shape = SHAPES["8B"]
    *_, fits = choose_launch(shape, recipe, Cards(1, 8 * GB, 64 * GB), launches(), (8192, 512))
    assert not fits
    asked = recipe.model_copy(update={"launch": "zero2"})
    launch, *_ = choose_launch(shape, asked, Cards(2, 80 * GB, 999 * GB), launches(), (2048, 512))
    assert launch.name == "zero2"
