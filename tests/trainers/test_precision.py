"""Precision on devices that lack one: bf16 logits are no bf16 loss, and MPS is sent no float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.rows import training_rows
from convbench.schema.recipe import Distil
from convbench.store.run import Run
from tests.helpers import tiny
from tests.support.later import later

torch = later("torch")
distil = later("convbench.learn.distil")
fitting = later("convbench.learn.fitting")
preference = later("convbench.learn.preference")
weighted_sft = later("convbench.learn.weighted_sft")


def test_the_distillation_loss_of_bf16_logits_is_computed_in_float32() -> None:
    torch.manual_seed(0)
    student, teacher = (torch.randn(6, 5000).to(torch.bfloat16) for _ in range(2))
    labels = torch.arange(6)
    settings = Distil(alpha=0.3, temperature=2.0)
    loss = distil.distillation_loss(student, teacher, labels, settings)
    exact = distil.distillation_loss(student.double(), teacher.double(), labels, settings)
    assert loss.dtype == torch.float32
    assert (loss - exact).abs().max() < 1e-5
    student.requires_grad_()
    distil.distillation_loss(student, teacher, labels, settings).sum().backward()
    assert student.grad is not None


def test_the_reference_of_pairs_is_frozen_in_bf16_where_training_is(
    tmp_path: Path, run: Run, model: Path
) -> None:
    from convbench.learn.job import load_rows

    dtypes = {}
    for precision in ("bf16", "fp32"):
        job, pairs = tiny.prepared(tmp_path, "dpo", run, model, **{"fit.precision": precision})
        trainer = preference.dpo_trainer(job, load_rows(job, pairs).rows)
        models = (trainer.model, trainer.ref_model)
        dtypes[precision] = [next(each.parameters()).dtype for each in models]
    assert dtypes["bf16"] == [torch.float32, torch.bfloat16]
    assert dtypes["fp32"] == [torch.float32, torch.float32]


def test_counts_are_float32_on_mps() -> None:
    dtypes = [fitting.counting_dtype(torch.device(name)) for name in ("cpu", "cuda:1", "mps")]
    assert dtypes == [torch.float64, torch.float64, torch.float32]


def test_fp64_is_refused_on_mps(
    tmp_path: Path, run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = tiny.prepared(tmp_path, "swift", run, model, **{"fit.precision": "fp64"})
    assert fitting.training_precision(job) == "fp64"
    monkeypatch.setattr("convbench.learn.fitting.local_device", lambda: "mps")
    with pytest.raises(TrainError, match="MPS"):
        fitting.training_precision(job)


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("normalize", ["tokens", "conversations"])
def test_a_step_for_mps_makes_no_float64(
    tmp_path: Path, run: Run, model: Path, monkeypatch: pytest.MonkeyPatch,
    normalize: str, forced: bool,
) -> None:  # fmt: skip
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[Any] = set()

    class Dtypes(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None):
            result = function(*args, **(kwargs or {}))
            parts = result if isinstance(result, (tuple, list)) else [result]
            seen.update({part.dtype for part in parts if isinstance(part, torch.Tensor)})
            return result

    job, weighted = tiny.prepared(
        tmp_path, "swift", run, model, **{"fit.normalize": normalize, "fit.probe": False}
    )
    trainer = weighted_sft.weighted_trainer(job, training_rows(weighted, job.chat).rows)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(3)])
    if forced:
        real = fitting.counting_dtype
        monkeypatch.setattr("convbench.learn.fitting.counting_dtype", lambda _: real("mps"))
    with Dtypes():
        count = trainer._get_num_items_in_batch([batch], trainer.args.device)
        trainer.compute_loss(trainer.model, batch, num_items_in_batch=count).backward()
    assert (torch.float64 in seen) != forced
