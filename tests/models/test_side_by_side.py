"""Engines that run at once: a card each, or where there are too few a share of one."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.errors import FatalModelError
from convbench.models.devices import Placement
from convbench.models.side_by_side import Engine, describe_side_by_side, place_side_by_side
from convbench.models.vllm import placed_arguments
from convbench.options.shared import CallOptions
from convbench.rollout.calls import cast_placements, open_cast
from convbench.schema import ModelConfig
from convbench.store.run import Run
from tests.helpers.tiny import judged_run

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
    assert both == [Placement(("0",), 0.43), Placement(("0",), 0.46)], "vLLM takes 3 GB more"
    assert both[1] is not None
    assert placed_arguments(both[1]) == ["--gpu-memory-utilization", "0.46"]
    large = Engine(f"vllm:{weights(tmp_path / 'large', LLAMA_70B)}")
    with pytest.raises(FatalModelError, match=r"large does not fit 1 x 80 GB: .* takes 147\.8 GB"):
        place_side_by_side([engines[0], large])
    cards(monkeypatch, "1x40")
    with pytest.raises(FatalModelError, match=r"no room for them \(40 GB, .* 18\.1 GB .* 21\.1 GB"):
        place_side_by_side(engines)
    cards(monkeypatch, "1x190")
    first, second = (each.share or 0 for each in place_side_by_side([engines[0], large]) if each)
    assert first * 190 > 16
    assert second * 190 > 141
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
    assert place_side_by_side([cpu, second]) == [Placement(()), Placement(("0", "1"), cards_each=1)]


EIGHT = tuple("01234567")


def test_vllm_has_a_copy_on_each_card_that_is_left(
    engines: list[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, "8x80")
    local, served = engines
    (alone,) = place_side_by_side([served])
    assert alone == Placement(EIGHT, cards_each=1)
    assert placed_arguments(alone) == ["--data-parallel-size", "8"]
    assert describe_side_by_side([served], [alone]) == (
        f"at once on this machine: {served.ref} on cards 0, 1, 2, 3, 4, 5, 6, 7 (8 copies) "
        "(--devices sets other places)"
    )
    assert place_side_by_side([local, served]) == [
        Placement(("0",)), Placement(EIGHT[1:], cards_each=1)
    ]  # fmt: skip
    other = Engine(f"vllm:{weights(tmp_path / 'other', LLAMA_8B)}")
    both = place_side_by_side([served, other])
    assert [each and len(each.names or ()) for each in both] == [4, 4]
    large = Engine(f"vllm:{weights(tmp_path / 'large', LLAMA_70B)}")
    (alone,) = place_side_by_side([large])
    assert alone is not None
    assert (alone.split, alone.copies) == (4, 2)
    assert placed_arguments(alone) == ["--tensor-parallel-size", "4", "--data-parallel-size", "2"]
    both = place_side_by_side([served, large])
    assert both == [Placement(EIGHT[4:], cards_each=1), Placement(EIGHT[:4], cards_each=4)]
    unknown = Engine("vllm:/nowhere/at-all")
    assert place_side_by_side([unknown]) == [Placement(EIGHT, cards_each=1)]


def test_the_user_s_numbers_of_copies_and_of_cards_each_hold(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, "8x80")
    ref = engines[1].ref

    def placed(placement: Placement) -> tuple[list[str] | None, int, list[str]]:
        (own,) = place_side_by_side([Engine(ref, placement)])
        assert own is not None
        flags = [word for word in placed_arguments(own) if not word.isdigit()]
        return list(own.names or ()), own.copies, flags

    two = {"data-parallel-size": 2}
    assert placed(Placement(vllm=two)) == (["0", "1"], 2, ["--data-parallel-size"])
    wide = {"tensor_parallel_size": 2}
    names, copies, flags = placed(Placement(vllm=wide))
    assert (names, copies) == (list(EIGHT), 4)
    assert sorted(flags) == ["--data-parallel-size", "--tensor-parallel-size"]
    assert placed(Placement(("2", "3", "5"))) == (["2", "3", "5"], 3, ["--data-parallel-size"])
    cards(monkeypatch, "8x16")
    assert placed(Placement(("2", "3", "5")))[:2] == (["2", "3"], 1), "two cards hold a copy"
    unknown = Engine("vllm:/nowhere/at-all", Placement(("2", "3")))
    (own,) = place_side_by_side([unknown])
    assert own is not None
    assert own.split == 2, "one copy over all that are named, as nothing says its size"


def test_a_copy_has_room_for_a_few_conversations_where_the_cards_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65 GB of weights fit a card of 80, but with 3 GB for conversations."""
    wide = {**LLAMA_8B, "hidden_size": 5120, "num_hidden_layers": 64, "intermediate_size": 27_648,
            "num_attention_heads": 40, "head_dim": 128, "vocab_size": 152_064}  # fmt: skip
    engine = Engine(f"vllm:{weights(tmp_path / 'wide', wide)}")
    cards(monkeypatch, "2x80")
    (own,) = place_side_by_side([engine])
    assert own is not None
    assert (own.split, own.copies) == (2, 1)
    cards(monkeypatch, "1x80")
    assert place_side_by_side([engine]) == [Placement(("0",))], "with one at a time, but it starts"


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({"quantization_config": {"bits": 4}}, None),
        ({"num_local_experts": 8}, None),
        ({}, {"quantization": "fp8"}),
        ({}, {"cpu-offload-gb": 40}),
    ],
)
def test_sizes_that_nothing_tells_are_not_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, object],
    arguments: dict[str, str | int | float | bool | None] | None,
) -> None:
    """Quantised weights and experts: as before over all cards that are named."""
    cards(monkeypatch, "2x80")
    ref = f"vllm:{weights(tmp_path / 'large', {**LLAMA_70B, **more})}"
    (own,) = place_side_by_side([Engine(ref, Placement(("0", "1"), vllm=arguments))])
    assert own is not None
    assert own.split == 2
    cards(monkeypatch, "1x80")
    (own,) = place_side_by_side([Engine(ref, Placement(vllm=arguments))])
    assert own == Placement(("0",), vllm=arguments)


def test_what_does_not_fit_alone_is_refused_with_what_it_takes(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, "1x24")
    served = engines[1]
    assert place_side_by_side([served]) == [Placement(("0",))], "21.1 of 21.6 GB"
    long = replace(served, tokens=32_768)
    with pytest.raises(
        FatalModelError, match=r"24 GB: .* 24\.4 GB .* 4\.3 one conversation of 32,768"
    ):
        place_side_by_side([long])
    typed = replace(served, placement=Placement(vllm={"max-model-len": 16_384}))
    with pytest.raises(FatalModelError, match="conversation of 16,384 tokens"):
        place_side_by_side([typed])
    short = replace(long, placement=Placement(vllm={"max-model-len": 4096}))
    assert place_side_by_side([short])[0] is not None
    cards(monkeypatch, "2x24")
    assert place_side_by_side([long]) == [Placement(("0", "1"), cards_each=2)]
    half = replace(served, placement=Placement(share=0.3))
    cards(monkeypatch, "1x40")
    with pytest.raises(FatalModelError, match=r"and 12\.0 GB are for it"):
        place_side_by_side([half])


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

    assert asyncio.run(shares()) == [0.43, 0.46]
    assert lines == [
        f"at once on this machine: {policy} on card 0 (43% of it); {teacher} on card 0 (46% of it) "
        "(--devices sets other places)"
    ]
    same = clarifying(tmp_path / "same", teacher, teacher)
    one_card = Placement(("0",))
    assert cast_placements(same, calls, lines.append) == {"student": one_card, "teacher": one_card}
    assert len(lines) == 1, "one server for both"
    typed = CallOptions(devices=("policy=[0]", "share.policy=0.3", "teacher=[0]"))
    placed = cast_placements(run, typed)
    assert placed["student"] == Placement(("0",), 0.3)
    assert placed["teacher"] == Placement(("0",), 0.6)
