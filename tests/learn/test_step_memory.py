"""A training's memory as arithmetic: at the papers' shapes, and beside the trainers' own steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convbench import catalog
from convbench.learn.memory import (
    FLOAT,
    HALF,
    MemoryParts,
    ShardPlan,
    StepRows,
    scoring_memory,
    shard_plan,
    step_memory,
)
from convbench.learn.shapes import ModelShape
from convbench.schema.recipe import LaunchSpec, Recipe
from tests.bench.step_memory import child
from tests.support.later import later

torch = later("torch")
fitting = later("convbench.learn.fitting")
critic = later("convbench.learn.sweet.critic")
learner = later("convbench.judges.adaptation.settings")

LLAMA_8B = ModelShape(4096, 32, 128_256, 14_336, 4096, 1024, tied=False)
QWEN_7B = ModelShape(3584, 28, 152_064, 18_944, 3584, 512, tied=False)


def recipe(name: str) -> Recipe:
    """A shipped recipe, with one batch a step."""
    return catalog.load_spec(Recipe, "recipes", name, sets={"fit.accumulation": 1})


def shards(name: str, cards: int = 2, **sets: Any) -> ShardPlan:
    """The plan of a shipped launch on a number of cards."""
    values = {"accelerate.num_processes": cards} if name != "none" else {}
    return shard_plan(catalog.load_spec(LaunchSpec, "launch", name, sets={**values, **sets}))


def lasting(parts: MemoryParts) -> float:
    """What does not depend on the rows."""
    return parts.weights + parts.gradients + parts.optimizer + parts.reference + parts.adapters


def test_sixteen_bytes_a_weight_on_one_card() -> None:
    parts = step_memory("weighted", LLAMA_8B, recipe("refit"), StepRows(1, 512, 128))
    assert lasting(parts) == pytest.approx(128e9, rel=0.05)
    assert parts.host == pytest.approx(4 * 8.03e9, rel=0.01), "loaded in float32"
    several = catalog.load_spec(Recipe, "recipes", "refit")
    more = step_memory("weighted", LLAMA_8B, several, StepRows(1, 512, 128))
    assert lasting(more) == pytest.approx(142e9, rel=0.02), "autocast's copies beside gradients"


def test_sweet_on_one_card() -> None:
    """Sixteen bytes a weight, and a reference in bfloat16."""
    rows = StepRows(2, 4096, 1024)
    parts = step_memory("preference", LLAMA_8B, recipe("sweet"), rows)
    assert parts.reference == pytest.approx(HALF * LLAMA_8B.weight_count)
    assert parts.total - parts.margin == pytest.approx(151e9, rel=0.05)


def test_eight_processes_load_an_eighth_each_under_zero_3() -> None:
    """Whole loading of policy and reference in float32 was 514 GB; of a bfloat16 reference 385."""
    rows = StepRows(2, 4096, 1024)
    plan = shards("zero3", 8)
    parts = step_memory("preference", LLAMA_8B, recipe("sweet"), rows, shards=plan)
    assert 8 * parts.host == pytest.approx(6 * LLAMA_8B.weight_count, rel=0.05)
    whole = step_memory("preference", LLAMA_8B, recipe("sweet"), rows, shards=shards("ddp", 8))
    assert 8 * whole.host == pytest.approx(385e9, rel=0.05)
    assert parts.total < 80e9, "and then each card holds an eighth"


def test_pretraining_takes_a_row_of_a_large_batch_at_a_time() -> None:
    """Twelve rows of 24,000 positions: one float32 copy of the logits and the weights would be 190
    GB, 113 GB one in bfloat16, and a step needs several. One row goes through at a time."""
    inner = learner.InnerSettings(tuning="lora", seeds=1, batch_size=12)
    rows = StepRows(12, 24_000, 24_000)
    numbers, weights = rows.positions * QWEN_7B.words, HALF * QWEN_7B.weight_count
    assert FLOAT * numbers + weights == pytest.approx(190e9, rel=0.05)
    assert HALF * numbers + weights == pytest.approx(103e9, rel=0.05)
    parts = step_memory("pretraining", QWEN_7B, inner, rows)
    one = inner.model_copy(update={"batch_size": 1, "accumulation": 12})
    assert parts == step_memory("pretraining", QWEN_7B, one, replace(rows, rows=1))
    assert 3 * FLOAT * numbers / 12 < parts.logits < 4 * FLOAT * numbers / 12
    assert parts.total < 80e9


def test_all_weights_of_an_adaptation_in_host_memory() -> None:
    inner = learner.InnerSettings(tuning="full", seeds=3, batch_size=4, offload="cpu")
    rows = StepRows(4, 2048, 2048)
    count = QWEN_7B.weight_count
    parts = step_memory("pretraining", QWEN_7B, inner, rows)
    assert parts.weights + parts.gradients == 6 * count
    assert parts.total < 80e9 < 160e9 > parts.host == 20 * count
    on_device = inner.model_copy(update={"offload": "none"})
    assert step_memory("pretraining", QWEN_7B, on_device, rows).total > 26 * count


def test_the_student_of_eight_layers_beside_its_teacher() -> None:
    student = replace(LLAMA_8B, layers=8)
    parts = step_memory(
        "distillation", student, recipe("star-gate-d-first8"), StepRows(4, 512, 128),
        shards=shards("zero0"), reference=LLAMA_8B,
    )  # fmt: skip
    assert parts.total - parts.margin == pytest.approx(72e9, rel=0.05)
    whole = step_memory(
        "distillation", LLAMA_8B, recipe("star-gate-d"), StepRows(4, 512, 128),
        shards=shards("zero0", 8),
    )  # fmt: skip
    assert whole.total > 128e9 + whole.reference, "zero0 divides nothing"


@pytest.mark.parametrize(
    ("name", "sets", "divided", "host"),
    [
        ("none", {}, (1, 1, 1, 1), set()),
        ("ddp", {}, (1, 1, 1, 1), set()),
        ("zero0", {}, (1, 1, 1, 1), set()),
        ("zero2", {}, (1, 8, 8, 1), {"optimizer"}),
        ("zero3", {}, (8, 8, 8, 8), set()),
        ("fsdp", {}, (8, 8, 8, 1), set()),
        ("zero3", {"accelerate.deepspeed_config.offload_param_device": "cpu"}, (8, 8, 8, 8),
         {"weights"}),
    ],
)  # fmt: skip
def test_what_a_launch_divides(
    name: str, sets: dict[str, Any], divided: tuple[int, ...], host: set[str]
) -> None:
    """Without parameters of its own to offload, stage 2 offloads the optimiser alone."""
    plan = shards(name, 8, **sets)
    assert (plan.weights, plan.gradients, plan.optimizer, plan.reference) == divided
    assert plan.host == host


def test_offload_moves_the_optimiser_to_the_host() -> None:
    rows = StepRows(1, 512, 128)
    here = step_memory("weighted", LLAMA_8B, recipe("refit"), rows)
    parts = step_memory("weighted", LLAMA_8B, recipe("refit"), rows, shards=shards("zero2", 1))
    assert parts.optimizer == 0
    assert parts.total < 40e9 < here.total / 3
    assert parts.host == pytest.approx(16 * LLAMA_8B.weight_count)


def test_scoring_keeps_logits_of_all_positions_once() -> None:
    rows = StepRows(8, 2000, 500)
    parts = scoring_memory(LLAMA_8B, rows)
    assert parts.weights == pytest.approx(16.06e9, rel=0.001)
    assert parts.logits == 16_000 * 128_256 * 2 + 500 * 128_256 * 10
    assert parts.total < 24e9, "fits on 24 GB"
    trained = scoring_memory(LLAMA_8B, rows, trained=True)
    assert trained.weights > 2.9 * parts.weights, "float32, and autocast's copies"


def test_adamw_takes_its_step_in_one_kernel_on_an_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fitting.optimizer_name("adamw_torch") == "adamw_torch"
    monkeypatch.setattr("convbench.learn.fitting.on_cpu", lambda: False)
    assert fitting.optimizer_name("adamw_torch") == "adamw_torch_fused"
    assert fitting.optimizer_name("sgd") == "sgd"


def test_the_fused_head_gives_the_critic_the_same_values_and_gradients() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=48,
        )
    )  # fmt: skip
    row = critic.CriticRow
    rows = [
        [row(tuple(range(3, 12)), (-1, -1, 0, 0, 0, -1, 1, 1, -1))],
        [row(tuple(range(20, 26)), (-1, -1, -1, 0, 0, 0))],
    ]
    batch = critic.pad_trajectories(rows, 0)
    found = []
    add_fused_lm_head(model)
    for fused in (False, True):
        model.zero_grad()
        values = critic.turn_log_probs(model, batch, mean="turn", fused=fused)
        (values * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
        found.append([values.detach(), *(weight.grad.clone() for weight in model.parameters())])
    for plain, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.exhaustive
def test_the_plan_is_the_trainers_own_step() -> None:
    """One training of each kind at SmolLM2's shape with four layers, on fake tensors."""
    lines = child(["tests.bench.step_memory", "quick"])
    assert len(lines) == 10
    for line in lines:
        assert line["ratio"] == pytest.approx(1, abs=0.1), line
