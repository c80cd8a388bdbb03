"""Batches in waves: half the price, the same conversations, nothing sent twice or lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Budget, Caller, batches
from convbench.engine.batches import open_batches
from convbench.errors import BudgetError, FatalModelError
from tests.helpers.held_talks import hold
from tests.support.batches import BatchProvider

OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-haiku-4-5"
BOTH = pytest.mark.parametrize("ref", [OPENAI, ANTHROPIC])
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SOONEST_S", 0.005)
    monkeypatch.setattr(batches, "LISTED_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")


@pytest.fixture
def provider() -> Iterator[BatchProvider]:
    with BatchProvider() as server:
        yield server


def talked(
    provider: BatchProvider,
    folder: Path,
    ref: str,
    *,
    batch: bool = True,
    count: int = 4,
    budget: Budget | None = None,
) -> tuple[dict[int, list[str]], Any, Caller]:
    """Hold the conversations; return what was said, how the jobs ended, and the caller."""
    folder.mkdir(exist_ok=True)

    base = provider.api_base if ref == OPENAI else provider.url
    return asyncio.run(hold(base, folder, ref, batch=batch, count=count, budget=budget))


def sent(provider: BatchProvider) -> list[int]:
    return [batch["requests"] for batch in provider.summary()["batches"]]


def replies(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "calls.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "content" in record]


@BOTH
def test_three_turns_are_three_waves_at_half_price(
    provider: BatchProvider, tmp_path: Path, ref: str
) -> None:
    plain, _, _ = talked(provider, tmp_path / "plain", ref, batch=False)
    provider.reset()
    said, summary, caller = talked(provider, tmp_path / "batched", ref)
    assert said == plain
    assert (summary.done, summary.failed, summary.stopped) == (4, 0, None)
    assert sent(provider) == [4, 4, 4]
    assert provider.summary()["calls"] == 0
    cost = [sum(one["cost_usd"] for one in replies(tmp_path / run)) for run in ("plain", "batched")]
    assert cost[1] == pytest.approx(cost[0] / 2)
    assert caller.budget.all.usd == pytest.approx(cost[1])


@BOTH
def test_whatever_a_provider_does_the_same_conversations_are_had(
    provider: BatchProvider, tmp_path: Path, ref: str
) -> None:
    plain, _, _ = talked(provider, tmp_path / "plain", ref, batch=False, count=12)
    provider.reset()
    provider.plan_batches(
        fail=0.2, expire=(2,), look_503=3, create_502=(1,), create_503=(3,),
        lines=("repeated", "foreign", "unreadable", "missing"),
    )  # fmt: skip
    said, summary, _ = talked(provider, tmp_path / "batched", ref, count=12)
    assert said == plain
    assert summary.failed == 0
    found = replies(tmp_path / "batched")
    assert len({(one["key"], one["hash"]) for one in found}) == len(found) == 36
    marks = {batch["metadata"].get("convbench") for batch in provider.summary()["batches"]}
    assert len(marks) in (1, len(sent(provider))), "a mark was sent twice"


def killed_at(provider: BatchProvider, folder: Path, ref: str, moment: str) -> None:
    """Hold conversations in a process that ends at a moment, without a word."""
    base = provider.api_base if ref == OPENAI else provider.url
    command = [sys.executable, "-m", "tests.helpers.held_talks", base, str(folder), ref, moment]
    folder.mkdir(exist_ok=True)
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 9


@BOTH
@pytest.mark.parametrize(
    "moment", ["intent 1", "created 1", "batch 1", "reply 1", "reply 3", "ended 1", "intent 2"]
)
def test_killed_at_every_state_nothing_is_sent_twice_or_lost(
    provider: BatchProvider, tmp_path: Path, ref: str, moment: str
) -> None:
    plain, _, _ = talked(provider, tmp_path / "plain", ref, batch=False)
    provider.reset()
    killed_at(provider, tmp_path / "run", ref, moment)
    assert open_batches(tmp_path / "run")
    said, _, _ = talked(provider, tmp_path / "run", ref)
    assert said == plain
    assert sent(provider) == [4, 4, 4]
    found = replies(tmp_path / "run")
    assert len({(one["key"], one["hash"]) for one in found}) == len(found) == 12
    assert not open_batches(tmp_path / "run")


def test_a_resume_without_batches_collects_what_is_open(
    provider: BatchProvider, tmp_path: Path
) -> None:
    killed_at(provider, tmp_path / "run", OPENAI, "batch 1")
    _, summary, _ = talked(provider, tmp_path / "run", OPENAI, batch=False)
    assert summary.done == 4
    assert sent(provider) == [4]
    assert provider.summary()["calls"] == 8


def test_a_budget_holds_a_batch_and_stops_before_what_it_cannot_pay(
    provider: BatchProvider, tmp_path: Path
) -> None:
    """What a wave cannot pay for goes with the next one, which knows what was used."""
    budget = Budget(tokens=600)
    said, summary, _ = talked(provider, tmp_path / "small", OPENAI, budget=budget, count=8)
    assert isinstance(summary.stopped, BudgetError)
    assert budget.all.tokens <= 600
    assert len(sent(provider)) > 1
    assert max(sent(provider)) < 8
    assert len(said) < 8


def test_a_full_queue_is_sent_in_parts(provider: BatchProvider, tmp_path: Path) -> None:
    provider.plan_batches(most_queued=300)
    _, summary, _ = talked(provider, tmp_path / "run", OPENAI, count=16)
    assert (summary.done, summary.failed) == (16, 0)
    assert provider.summary()["repeats"] == 0


def test_a_server_without_batches_says_so(tmp_path: Path) -> None:
    from tests.support.provider import Provider

    with Provider() as plain:
        _, summary, _ = talked(plain, tmp_path / "run", OPENAI)  # type: ignore[arg-type]
    assert isinstance(summary.stopped, FatalModelError)
    assert "--batch: calls of openai/gpt-4o-mini cannot go in batches" in str(summary.stopped)
