"""One real GPU: training in bf16, sampling, the card empty afterwards but for CUDA's context."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import yaml

from convbench.models import open_model
from convbench.models.devices import list_devices
from convbench.models.local import LocalModel
from convbench.schema import Sampling
from tests.helpers import stages
from tests.helpers.cards import used

pytestmark = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None or not list_devices(), reason="no GPU here (nvidia-smi)"
)


@pytest.fixture(autouse=True)
def _context() -> None:
    """CUDA's context in this process, which stays."""
    torch = pytest.importorskip("torch")
    torch.zeros(1, device="cuda")


SLACK = 64 << 20
"""Bytes on the card that others may come and go with."""
TWO = {
    "extends": "pocket", "title": "a build and a training", "seeds": [0], "modes": ["thinking"],
    "learners": ["base", "refit", "refit:lean"], "count": 20, "samples": 2, "temperatures": [0.7],
    "recipe_sets": {
        "all": {"fit.max_steps": 2, "fit.save": "end", "fit.precision": "bf16"},
        "refit:lean": {"fit.packing": True, "fit.arguments.activation_offloading": True},
    },
}  # fmt: skip


def test_sampling_gives_the_card_back() -> None:
    before = used()

    async def main() -> int:
        model = open_model("local:pocket")
        assert isinstance(model, LocalModel)
        try:
            said = [{"role": "user", "content": "hello"}]
            calls = (model.complete(said, Sampling(max_tokens=16), key=str(n)) for n in range(64))
            assert len(await asyncio.gather(*calls)) == 64
            return used()
        finally:
            await model.aclose()

    during = asyncio.run(main())
    assert during > before
    assert used() <= before + SLACK


def test_an_experiment_trains_in_bf16_and_leaves_the_card_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(TWO))
    before = used()
    done = stages.experiment("two.yaml", run=Path("root"))
    assert done.is_complete, done.failure_lines
    first = [
        json.loads((file / "training.json").read_text())["log"][0]["loss"]
        for file in sorted((done.runs[0] / "checkpoints").iterdir())
    ]
    assert first[1] == pytest.approx(first[0], rel=0.05), "packed, activations in memory"
    assert used() <= before + SLACK
