"""The loss and its gradient, through the real trainer, against sums written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convbench.learn.job import Job
from convbench.learn.rows import TrainingRow
from convbench.learn.weights import Weighted
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.exact import Gradients, apart, rows_of
from tests.support.later import later

torch = later("torch")
transformers = later("transformers")
weighted_sft = later("convbench.learn.weighted_sft")
recording = later("tests.helpers.workers.gradients")


Make = Callable[..., tuple[Job, Weighted]]


@pytest.fixture
def make(tmp_path: Path, run: Run, model: Path) -> Make:
    """Resolve a recipe and prepare its data: all nine rows in one step, unless told otherwise."""

    def prepare(recipe: str, **sets: Any) -> tuple[Job, Weighted]:
        one_step = {"fit.max_steps": 1, "fit.batch_size": 9}
        return tiny.prepared(tmp_path, recipe, run, model, **{**one_step, **sets})

    return prepare


def by_hand(
    model: Path, rows: tuple[TrainingRow, ...], weights: list[float], dtype: torch.dtype
) -> Gradients:
    """-(1/N) sum_i w_i sum_tokens grad log pi, one row at a time, no padding, full logits."""
    net = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    total = torch.zeros((), dtype=dtype)
    tokens = 0
    for row, weight in zip(rows, weights, strict=True):
        ids = torch.tensor([row.tokens.ids])
        log_probs = net(input_ids=ids).logits[0, :-1].log_softmax(-1)
        picked = log_probs[torch.arange(ids.shape[1] - 1), ids[0, 1:]]
        on = torch.tensor(row.tokens.mask[1:], dtype=dtype)
        total = total - weight * (picked * on).sum()
        tokens += int(on.sum())
    (total / tokens).backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("precision", "dtype", "limit"), [("fp32", "float32", 1e-5), ("fp64", "float64", 1e-6)]
)
@pytest.mark.parametrize("recipe", ["swift", "refit"])
def test_gradient_is_the_weighted_sum(
    make: Make, model: Path, recipe: str, precision: str, dtype: str, limit: float
) -> None:
    job, weighted = make(recipe, **{"fit.precision": precision})
    rows = rows_of(job, weighted)
    assert len({len(row.tokens.ids) for row in rows}) > 3, "rows of unequal lengths are padded"
    found = recording.record(job, weighted)["steps"][0]
    wanted = by_hand(model, rows, [row.weight for row in rows], getattr(torch, dtype))
    assert apart(found, {name: g.float() for name, g in wanted.items()}) < limit


def test_gradient_checkpointing_changes_nothing(make: Make) -> None:
    plain, checkpointed = (
        recording.record(*make("swift", **{"fit.gradient_checkpointing": on}))["steps"][0]
        for on in (False, True)
    )
    assert apart(checkpointed, plain) < 1e-6


def test_weights_of_one_are_trls_sft(make: Make, model: Path, tmp_path: Path) -> None:
    """Loss and gradient bit for bit, against an SFTTrainer that knows nothing of weights."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from convbench.learn import fitting

    settings = {"weighting.threshold": -1.0, "fit.shuffle": False, "fit.batch_size": 3,
                "fit.accumulation": 3}  # fmt: skip
    job, weighted = make("star-gate", **settings)
    rows = rows_of(job, weighted)
    assert [row.weight for row in rows] == [1.0] * 9
    ours = recording.record(job, weighted)

    class Look(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, *_: Any, model: Any = None, **__: Any) -> None:
            self.seen = {n: p.grad.clone() for n, p in model.named_parameters()}

    look = Look()
    arguments = fitting.training_arguments(job)
    trainer = SFTTrainer(
        model=fitting.load_model(job),
        args=SFTConfig(
            **{**arguments, "output_dir": str(tmp_path / "trl"), "remove_unused_columns": True},
            dataset_kwargs={"skip_prepare_dataset": True},
            shuffle_dataset=False,
            train_sampling_strategy="sequential",
        ),
        train_dataset=Dataset.from_list(
            [{k: row.trainer_fields()[k] for k in ("input_ids", "labels")} for row in rows]
        ),
        processing_class=job.chat.tokenizer,
        callbacks=[look],
    )
    trainer.train()
    theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert ours["loss"] == theirs
    for name, gradient in ours["steps"][0].items():
        # the head is summed in other parts here
        assert torch.allclose(gradient, look.seen[name], rtol=1e-5, atol=1e-7), name


def test_accumulation_is_one_batch(make: Make) -> None:
    """Nine rows of unequal lengths in windows of 4, 4 and 1; then the same in twos."""
    whole = recording.record(*make("swift", **{"fit.batch_size": 4, "fit.max_steps": 3}))
    parts = recording.record(
        *make("swift", **{"fit.batch_size": 2, "fit.accumulation": 2, "fit.max_steps": 3})
    )
    for step in range(3):
        assert apart(parts["steps"][step], whole["steps"][step]) < 1e-5
    assert apart(parts["parameters"], whole["parameters"]) < 1e-5


def test_n_counts_rows_of_weight_0_that_no_pass_is_made_for(make: Make, model: Path) -> None:
    job, weighted = make("swift", **{"fit.probe": False})
    rows = rows_of(job, weighted)
    assert sum(row.weight == 0 for row in rows) == 3
    heavy = tuple(row for row in rows if row.weight != 0)
    alone = by_hand(model, heavy, [row.weight for row in heavy], torch.float32)
    factor = sum(sum(r.tokens.mask) for r in heavy) / sum(sum(r.tokens.mask) for r in rows)
    trainer, passed, scored = weighted_sft.weighted_trainer(job, rows), [], []
    trainer.model.register_forward_pre_hook(
        lambda _, __, given: passed.append(len(given["input_ids"])), with_kwargs=True
    )
    trainer.model.get_output_embeddings().register_forward_pre_hook(
        lambda _, given: scored.append(len(given[0]))
    )
    found = recording.watched(trainer)["steps"][0]
    assert passed == [len(heavy)]
    labels = sum(sum(row.tokens.mask) for row in heavy)
    assert scored == [labels, labels], "the head has them alone, and once more going back"
    assert apart(found, {name: g * factor for name, g in alone.items()}) < 1e-5


def test_short_rows_in_bf16_on_a_cpu_attend_by_plain_products(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convbench.learn import kernels

    found = {}
    ways = (
        ("bf16", "eager", kernels.MAX_PAIR_BYTES),
        ("bf16", "sdpa", 0),
        ("fp32", "sdpa", 1 << 60),
    )
    for precision, kind, room in ways:
        monkeypatch.setattr(kernels, "MAX_PAIR_BYTES", room)
        job, weighted = make("swift", **{"fit.precision": precision})
        trainer = weighted_sft.weighted_trainer(job, rows_of(job, weighted))
        assert trainer.model.config._attn_implementation == kind
        found[precision, kind] = recording.watched(trainer)["steps"][0]
    plain, fused, wanted = found.values()
    assert apart(plain, wanted) < 1.5 * apart(fused, wanted), "as exact as bfloat16 is"


def test_normalised_by_conversations(make: Make) -> None:
    by_tokens = recording.record(*make("swift"))["steps"][0]
    job, weighted = make("swift", **{"fit.normalize": "conversations"})
    by_conversations = recording.record(job, weighted)["steps"][0]
    tokens = sum(sum(row.tokens.mask) for row in rows_of(job, weighted))
    scaled = {name: g * tokens / 9 for name, g in by_tokens.items()}
    assert apart(by_conversations, scaled) < 1e-5


@pytest.mark.parametrize("weights", [[0.0] * 9, [1.0, -1.0] * 4 + [0.0]])
def test_weights_that_sum_to_0_stay_finite(make: Make, model: Path, weights: list[float]) -> None:
    job, weighted = make("swift")
    items = tuple((item, w) for (item, _), w in zip(weighted.items, weights, strict=True))
    changed = Weighted(weighted.selection, items)
    found = recording.record(job, changed)
    gradients = found["steps"][0]
    assert all(g.isfinite().all() for g in gradients.values())
    assert all(p.isfinite().all() for p in found["parameters"].values())
    if any(weights):
        wanted = by_hand(model, rows_of(job, changed), weights, torch.float32)
        assert apart(gradients, wanted) < 1e-5
    else:
        assert all(not g.any() for g in gradients.values())


@pytest.mark.parametrize(("rows", "multiple"), [(9, 4), (9, 2), (8, 4), (1, 8)])
def test_no_row_is_counted_twice(rows: int, multiple: int) -> None:
    epoch = 0
    order = weighted_sft.EpochSampler(rows, multiple, seed=3, epoch=lambda: epoch)
    first = list(order)
    assert len(first) == len(order)
    assert len(first) % multiple == 0
    assert sorted(first) == list(range(rows)) + [rows] * (len(first) - rows)
    assert first[:rows] == list(weighted_sft.EpochSampler(rows, 1, seed=3, epoch=lambda: 0)), (
        "whatever the processes"
    )
    epoch = 1
    assert rows < 3 or list(order) != first, "another order in another epoch"


def test_looseness_is_followed_from_the_first_batch(make: Make, model: Path) -> None:
    """log(pi / pi_0) of the first four rows, at the end against the start."""
    job, weighted = make("swift", **{"fit.batch_size": 4, "fit.max_steps": 3})
    rows = rows_of(job, weighted)
    first = [rows[i] for i in list(weighted_sft.EpochSampler(9, 4, seed=2, epoch=lambda: 0))[:4]]
    found = recording.record(job, weighted)
    net = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    before = [row_log_pi(net, row) for row in first]
    net.load_state_dict(found["parameters"], strict=False)
    change = [row_log_pi(net, row) - then for row, then in zip(first, before, strict=True)]
    assert found["log_ratio"][-1] == pytest.approx(sum(change) / 4, abs=1e-3)
    assert abs(sum(change)) > 0.1
    assert len(found["log_ratio"]) == 2, "none on the first step's line"


def row_log_pi(net: Any, row: TrainingRow) -> float:
    """log pi of the policy's tokens of a row."""
    ids = torch.tensor([row.tokens.ids])
    with torch.no_grad():
        each = net(input_ids=ids).logits[0, :-1].log_softmax(-1)
    picked = each.gather(-1, ids[0, 1:, None])[:, 0]
    return float((picked * torch.tensor(row.tokens.mask[1:])).sum())


def test_collapse() -> None:
    assert not weighted_sft.has_collapsed(first_log_pi=-1.0, log_pi=-1.9, loss=0.3)
    assert weighted_sft.has_collapsed(first_log_pi=-1.0, log_pi=-2.1, loss=0.3)
    assert weighted_sft.has_collapsed(first_log_pi=-1.0, log_pi=float("nan"), loss=0.3)
    assert weighted_sft.has_collapsed(first_log_pi=-1.0, log_pi=-1.0, loss=float("inf"))
