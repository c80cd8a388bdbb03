"""The papers' experiments on one and on eight cards of 80 GB: placed, and shown on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.bench import ROOT
from tests.helpers import stages
from tests.helpers.shapes import QWEN_7B, write_model


@pytest.mark.parametrize(("cards", "host"), [("1x80", 256), ("8x80", 1000)])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("paper", "llama", marks=pytest.mark.exhaustive),
        ("sweet-backend", "llama"),
        ("sweet-frontend", "llama"),
        ("seal", "qwen"),
        ("seal-pretraining", "qwen"),
    ],
)
def test_the_papers_experiments_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str, cards: str, host: int
) -> None:
    """Each fits one machine of eight cards, and all but SWEET's one card; the page on what fits has
    the same figures."""
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", cards)
    monkeypatch.setenv("CONVBENCH_SIMULATED_HOST", str(host))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    write_model(tmp_path / "llama")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    write_model(tmp_path / "qwen", {**QWEN_7B, "max_position_embeddings": 131_072})
    plan = stages.experiment(
        name, run=tmp_path / "r", set=(f"model=vllm:{tmp_path / model}",), dry_run=True
    ).plan
    words = ("fits", "GB", "has devices", "at once")
    unfit = [line for line in plan.missing if any(word in line for word in words)]
    assert bool(unfit) == (name.startswith("sweet") and cards == "1x80"), plan.missing
    page = (ROOT / "docs" / "howto" / "scale.md").read_text()
    for line in () if unfit else plan.placements.values():
        where, size = line.split(": ")
        card, memory = re.findall(r"([\d.,]+) GB", size)
        assert any(
            all(f" {part} " in row for part in (name, cards, card, memory)) and where in row
            for row in page.splitlines()
        ), line
