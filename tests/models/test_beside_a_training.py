"""What `make gpu` starts beside a training step: its share of a card, and its command."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from convbench.learn.memory import Kind
from convbench.models.devices import Device
from convbench.models.engine_memory import engine_memory
from tests.bench.step_memory import shape_named
from tests.gpu.beside import TOKENS, does_fit_beside, serve_random_weights, share_of_engine
from tests.helpers.vllm import python

__all__ = ["python"]


def test_which_steps_fit_a_card_beside_an_engine() -> None:
    share = share_of_engine("8B", 80e9)
    assert share is not None
    assert share * 80e9 >= engine_memory(shape_named("8B"), TOKENS).least_bytes
    fitting = {size: {k for k in get_args(Kind) if does_fit_beside(k, "8B", size)}
               for size in (40e9, 80e9, 141e9)}  # fmt: skip
    assert fitting[40e9] == set()
    assert fitting[80e9] == {"weighted", "preference", "critic"}
    assert fitting[141e9] == set(get_args(Kind))
    assert share_of_engine("8B", 16e9) is None


def test_it_is_started_with_random_weights_of_a_config_alone(python: Path, tmp_path: Path) -> None:
    with serve_random_weights(tmp_path, Device("0", 80 * 10**9), 0.3, python) as model:
        assert not list((tmp_path / "weights").glob("*.safetensors"))
        line = model.command_line(1)
    assert line[line.index("--load-format") + 1] == "dummy"
    assert line[line.index("--gpu-memory-utilization") + 1] == "0.3"
    assert line.count("--max-model-len") == 1
    assert model._process is None, "and it is gone"
