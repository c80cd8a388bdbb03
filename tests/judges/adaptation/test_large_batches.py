"""Continued pre-training at the paper's shape: in parts, with the gradient of one batch."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.learner import Learner
from convbench.judges.adaptation.runner import CPT
from convbench.judges.adaptation.settings import InnerSettings, rows_at_once
from convbench.models.weights_path import check_weights
from tests.support.later import later

torch = later("torch")
fit = later("convbench.judges.adaptation.fit")
full_finetune = later("convbench.judges.adaptation.full_finetune")
lora = later("convbench.judges.adaptation.lora")

ROWS = [list(range(3, 3 + n)) for n in (31, 12, 40, 25, 38, 7, 19, 40)]
STARTS = [20, 1, 30, 10, 38, 5, 19, 40]
"""Where the labels of each row begin; the last has none."""


def settings(**values: Any) -> InnerSettings:
    return InnerSettings(**{**CPT, "r": 4, "alpha": 8, "seeds": 3, "epochs": 1, **values})


@pytest.fixture(scope="module")
def learner() -> Learner:
    torch.set_num_threads(1)
    return Learner.load(check_weights("pocket"), "cpu")


def make_stack(learner: Learner, tuning: str, inner: InnerSettings) -> Any:
    torch.manual_seed(0)
    if tuning == "full":
        return full_finetune.FullFinetune(learner.model, 0)
    stack = lora.MultiSeedLora(learner.model, inner, range(inner.seeds))
    stack.flat.data += torch.randn_like(stack.flat) / 50  # B too, so that A has a gradient
    return stack


def test_the_papers_batch_goes_through_a_row_of_each_seed_at_a_time() -> None:
    """12 rows of 2,048 tokens have 24,576 positions, and logits of 15 GB in float32."""
    inner = InnerSettings(**CPT)
    assert (inner.seeds * inner.batch_size * inner.max_length, inner.batch_size) == (24_576, 4)
    assert rows_at_once(inner.max_length, inner.seeds, inner) == 1
    assert rows_at_once(400, 3, inner) == 3
    assert rows_at_once(341, 3, inner) is None, "a batch of 4,092 positions stays one"


@pytest.mark.parametrize("starts", [None, STARTS])
@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_parts_have_the_gradient_of_the_whole(
    learner: Learner, tuning: str, starts: list[int] | None
) -> None:
    from convbench.judges.adaptation.fit import _step_gradient

    inner = settings(seeds=1 if tuning == "full" else 3)
    labels = fit.next_token_labels(ROWS, starts)
    orders = [[3, 1, 2, 0, 4, 7, 6, 5], [0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]]
    orders = orders[: inner.seeds]
    gradients, widths = [], []

    def note(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        widths[-1].append(output.shape[0] * output.shape[1])

    handle = learner.model.lm_head.register_forward_hook(note)
    try:
        for size in (None, 3, 1):
            stack = make_stack(learner, tuning, inner)
            widths.append([])
            with stack.apply_to_model(), fit.recomputed_layers(learner.model, size is not None):
                gradients.append(
                    _step_gradient(
                        learner.model, stack, (ROWS, labels), orders, inner, PassClock(), size
                    )
                )
    finally:
        handle.remove()
    loss, gradient = gradients[0]
    for other, parts in gradients[1:]:
        assert torch.allclose(other, loss, rtol=1e-5)
        assert (parts - gradient).abs().max() < 1e-5 * gradient.abs().max()
    assert max(widths[2]) <= inner.seeds * 40 < max(widths[0])
    assert len(widths[2]) == 8
    if starts:
        assert sum(widths[2]) < sum(widths[0]) / 2, "logits of labels alone"
    layers = [m for m in learner.model.modules() if hasattr(m, "gradient_checkpointing")]
    assert layers
    assert not any(layer.gradient_checkpointing or layer.training for layer in layers)


def test_layers_are_computed_again(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training above the limit recomputes, with the same adapters as below it."""
    passes: dict[int, int] = {}

    def train(limit: int) -> Any:
        monkeypatch.setattr("convbench.judges.adaptation.settings.POSITIONS", limit)
        pupil, inner = copy.deepcopy(learner.model), settings(max_grad_norm=0, learning_rate=1e-3)
        stack = lora.MultiSeedLora(pupil, inner, range(3))
        count = lambda *_: passes.update({limit: passes.get(limit, 0) + 1})  # noqa: E731
        pupil.model.layers[0].self_attn.register_forward_hook(count)
        assert fit.fit_adapters(pupil, stack, ROWS, inner, PassClock()) == 1
        return stack.flat

    whole, parts = train(10**6), train(120)
    assert passes == {10**6: 2, 120: 16}, "two batches of four; eight rows, forwards and again"
    assert (parts - whole).abs().max() < 1e-5


@pytest.mark.parametrize("limit", [10**6, 60])
def test_all_weights_in_host_memory_learn_the_same(
    learner: Learner, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("convbench.judges.adaptation.settings.POSITIONS", limit)
    inner = settings(seeds=1, epochs=3, tuning="full", learning_rate=1e-4)
    trained = {}
    for offload in (False, True):
        stack = full_finetune.FullFinetune(learner.model, 0, offload=offload)
        begun = stack.flat.clone()
        assert fit.fit_adapters(learner.model, stack, ROWS, inner, PassClock()) == 3
        assert (stack.flat - begun).abs().max() > 1e-5
        ids = torch.tensor([ROWS[0]])
        with stack.apply_to_model(), torch.no_grad():
            trained[offload] = stack.flat, learner.model(input_ids=ids).logits
        merged = copy.deepcopy(learner.model)
        stack.merge_into(merged)
        assert torch.equal(merged(input_ids=ids).logits, trained[offload][1])
    for device, host in zip(*trained.values(), strict=True):
        assert torch.equal(device, host)


def test_host_memory_holds_all_weights_where_a_card_cannot(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    weights = torch.empty(10**9, device="meta")
    model = SimpleNamespace(device=torch.device("cuda", 0), parameters=lambda: [weights])
    for free, offloaded in ((27e9, False), (25e9, True)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 80e9))
        assert full_finetune.is_offloaded(model, settings(tuning="full")) is offloaded
        assert full_finetune.is_offloaded(model, settings(tuning="full", offload="cpu"))
        assert not full_finetune.is_offloaded(model, settings(tuning="full", offload="none"))
    assert not full_finetune.is_offloaded(learner.model, settings(tuning="full"))
