"""Engines that run at once: a card each, or where there are too few a share of one."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from convbench.errors import FatalModelError
from convbench.models.devices import Placement
from convbench.models.side_by_side import Engine, place_side_by_side
from convbench.models.vllm import placed_arguments
from convbench.options.shared import CallOptions
from convbench.rollout.calls import cast_placements, open_cast
from convbench.schema import ModelConfig
from convbench.store.run import Run
from tests.learn.tiny import judged_run

STAND_IN = Path(__file__).with_name("stand_in")
LLAMA_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "model_type": "llama",
}  # fmt: skip
LLAMA_70B = {
    **LLAMA_8B, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
    "intermediate_size": 28672,
}  # fmt: skip


def cards(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", text)


def weights(folder: Path, config: dict[str, object]) -> str:
    """A folder with a config.json alone."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def engines(tmp_path: Path) -> list[Engine]:
    """The checkpoint by the local engine, and the teacher by vLLM, both of 8 billion weights."""
    names = [weights(tmp_path / name, LLAMA_8B) for name in ("checkpoint", "teacher")]
    return [Engine(f"local:{names[0]}"), Engine(f"vllm:{names[1]}")]


def test_each_has_a_card_of_its_own_where_there_are_several(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, "2x80")
    assert place_side_by_side(engines) == [Placement(("0",)), Placement(("1",))]
    assert place_side_by_side(engines[:1]) == [None]
    cards(monkeypatch, "1x80")
    assert place_side_by_side(engines[:1]) == [None], "alone it has the card"
    monkeypatch.delenv("CONVBENCH_SIMULATED_DEVICES")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert place_side_by_side(engines) == [None, None], "on a CPU"


def test_one_card_is_shared_by_what_each_needs(
    engines: list[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, "1x80")
    both = place_side_by_side(engines)
    assert both == [Placement(("0",), 0.45), Placement(("0",), 0.45)]
    assert both[1] is not None
    assert placed_arguments(both[1]) == ["--gpu-memory-utilization", "0.45"]
    large = Engine(f"vllm:{weights(tmp_path / 'large', LLAMA_70B)}")
    with pytest.raises(FatalModelError, match="no room for them"):
        place_side_by_side([engines[0], large])
    cards(monkeypatch, "1x180")
    first, second = (each.share or 0 for each in place_side_by_side([engines[0], large]) if each)
    assert first * 180 > 16
    assert second * 180 > 141
    assert first + second <= 0.9


def test_what_the_user_sets_stays(engines: list[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, "2x80")
    first, second = engines
    on_one = Engine(second.ref, Placement(("1",), 0.3))
    assert place_side_by_side([first, on_one]) == [Placement(("0",)), on_one.placement]
    both = [Engine(first.ref, Placement(("1",))), on_one]
    assert place_side_by_side(both) == [Placement(("1",), 0.6), on_one.placement]
    apart = [Engine(first.ref, Placement(("0",))), Engine(second.ref, Placement(("1",)))]
    assert place_side_by_side(apart) == [each.placement for each in apart]
    cpu = Engine(first.ref, Placement(()))
    assert place_side_by_side([cpu, second]) == [Placement(()), Placement(("0",))]


def clarifying(folder: Path, policy: str, teacher: str) -> Run:
    """A run whose cast has two models."""
    run = judged_run(folder)
    cast = {"student": ModelConfig(model=policy), "teacher": ModelConfig(model=teacher)}
    return Run(run.path, run.manifest.model_copy(update={"cast": cast}))


def test_an_evaluation_places_checkpoint_and_teacher_and_says_so(
    engines: list[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, "1x80")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={STAND_IN} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    policy, teacher = (engine.ref for engine in engines)
    run = clarifying(tmp_path / "run", policy, teacher)
    calls, lines = CallOptions(vllm_python=python), list[str]()

    async def shares() -> list[float | None]:
        async with open_cast(run, calls, lines.append) as cast:
            opened = (cast["student"], cast["teacher"])
            return [model.placement.share for model in opened]  # type: ignore[attr-defined]

    assert asyncio.run(shares()) == [0.45, 0.45]
    assert lines == [
        f"at once on this machine: {policy} on card 0 (45% of it); {teacher} on card 0 (45% of it) "
        "(--devices sets other places)"
    ]
    same = clarifying(tmp_path / "same", teacher, teacher)
    assert cast_placements(same, calls, lines.append) == {"student": None, "teacher": None}
    assert len(lines) == 1, "one server for both"
    typed = CallOptions(devices=("policy=[0]", "share.policy=0.3", "teacher=[0]"))
    placed = cast_placements(run, typed)
    assert placed["student"] == Placement(("0",), 0.3)
    assert placed["teacher"] == Placement(("0",), 0.6)
