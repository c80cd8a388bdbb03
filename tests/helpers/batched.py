"""Providers that take batches, without waiting."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from convbench.engine import RetryPolicy, batches
from convbench.rollout import calls as rollout_calls
from tests.support.batches import BatchProvider

OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-haiku-4-5"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(batches, "LISTED_S", 0.02)
    monkeypatch.setattr(batches, "SOONEST_S", 0.005)
    quick = functools.partial(RetryPolicy, backoff_s=0.005, longest_s=0.01, patience_s=30.0)
    monkeypatch.setattr(rollout_calls, "RetryPolicy", quick)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")
    monkeypatch.chdir(tmp_path)


def base(provider: BatchProvider, model: str) -> str:
    return provider.api_base if model == OPENAI else provider.url


def sent(provider: BatchProvider) -> list[int]:
    return [batch["requests"] for batch in provider.summary()["batches"]]
