"""What `training.json` says of a training's time, and of the variance of its first gradient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.learn import launch
from convbench.learn.weights import paper_weights
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.exact import rows_of
from tests.support.later import later

torch = later("torch")
transformers = later("transformers")
fitting = later("convbench.learn.fitting")


NAMES = ("refit", "centred", "swift")


def trained(folder: Path, run: Run, model: Path, recipe: str, **sets: Any) -> tuple[Any, Any, Any]:
    """Return (training.json, the job's rows, its data) of a training of one step on all rows."""
    folder.mkdir()
    one = {"fit.max_steps": 1, "fit.batch_size": 3, "fit.accumulation": 3, "fit.precision": "fp32"}
    job, weighted = tiny.prepared(folder, recipe, run, model, **{**one, **sets})
    launch.load_trainer(launch.locate_trainer(job.recipe.trainer)).fit(job, weighted)
    return json.loads((job.folder / "training.json").read_text()), rows_of(job, weighted), weighted


def by_autograd(model: Path, rows: Any, weights: list[tuple[float, ...]]) -> dict[str, Any]:
    """The same figures, from each row's gradient of the head as autograd gives it."""
    net = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    head = net.get_output_embeddings().weight.detach()
    gradients, tokens = [], 0
    for row in rows:
        ids = torch.tensor([row.tokens.ids])
        with torch.no_grad():
            states = net.base_model(input_ids=ids).last_hidden_state[0, :-1]
        matrix = head.clone().requires_grad_()
        scores = (states @ matrix.T).log_softmax(-1)[range(len(states)), ids[0, 1:]]
        mask = torch.tensor(row.tokens.mask[1:], dtype=torch.bool)
        scores[mask].sum().backward()
        gradients.append(matrix.grad.flatten())
        tokens += int(mask.sum())
    found: dict[str, Any] = {"rows": len(rows), "tokens": tokens, "layer": "output"}
    for number, name in enumerate(NAMES):
        parts = torch.stack([w[number] * g for w, g in zip(weights, gradients, strict=True)])
        spread = parts.var(0).sum().item() * len(rows)
        norm = parts.sum(0).square().sum().item()
        found[name] = {"variance": spread / tokens**2, "squared_norm": norm / tokens**2}
    return found


@pytest.mark.parametrize("recipe", ["swift", "refit"])
def test_variance_is_that_of_the_rows_gradients(
    tmp_path: Path, run: Run, model: Path, recipe: str
) -> None:
    made, rows, weighted = trained(tmp_path / recipe, run, model, recipe)
    both = paper_weights(weighted.selection)
    assert {row.conversation_id for row in rows} <= both.keys()
    wanted = by_autograd(model, rows, [both[row.conversation_id] for row in rows])
    found = made["gradient"]
    assert {k: found[k] for k in ("rows", "tokens", "layer")} == {
        k: wanted[k] for k in ("rows", "tokens", "layer")
    }
    for name in NAMES:
        assert found[name] == pytest.approx(wanted[name], rel=1e-4)
    assert found["refit"]["variance"] > found["centred"]["variance"] > 0


def test_only_what_can_be_compared_is_measured(tmp_path: Path, run: Run, model: Path) -> None:
    assert "gradient" not in trained(tmp_path / "a", run, model, "star-gate")[0]
    assert "gradient" not in trained(tmp_path / "b", run, model, "swift", **{"fit.probe": False})[0]
    made, *_ = trained(tmp_path / "c", run, model, "swift", **{"fit.batch_size": 1,
                                                              "fit.accumulation": 1})  # fmt: skip
    assert "gradient" not in made, "one row has no variance"
    assert not list(tmp_path.rglob("probe-*.json"))


def test_seconds_of_a_training_that_was_resumed_are_of_both_tries(
    tmp_path: Path, run: Run, model: Path
) -> None:
    made, *_ = trained(tmp_path / "a", run, model, "swift")
    assert made["devices"] == {fitting.device_name(): 1}
    assert 0 < made["seconds"] < 600
    assert not list(tmp_path.rglob("clock.json"))
    clock = fitting.TrainingClock(tmp_path / "clock.json")
    (tmp_path / "clock.json").write_text("41.5")
    for step, earlier in ((0, 0.0), (3, 41.5)):
        state = transformers.TrainerState(global_step=step)
        clock.on_train_begin(None, state, None)
        clock.on_save(None, state, None)
        clock.on_train_end(None, state, None)
        assert earlier <= clock.seconds < earlier + 5
        assert json.loads((tmp_path / "clock.json").read_text()) <= clock.seconds
        (tmp_path / "clock.json").write_text("41.5")
