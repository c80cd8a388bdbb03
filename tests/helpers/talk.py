"""Conversations of a few turns through the engine, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from convbench.engine import Caller, RetryPolicy, Stopped, Summary
from convbench.engine.jobs import run_jobs, stop_reason
from convbench.models import Model
from convbench.schema import Message, Sampling

QUICK = RetryPolicy(timeout_s=3.0, backoff_s=0.02, longest_s=0.2)
"""Waits of a test: the same machinery, shorter."""


@dataclass
class Outcome:
    """What the callbacks saw."""

    done: dict[int, list[str]] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    summary: Summary | None = None


async def converse(
    caller: Caller, model: Model, number: int, turns: int = 3, tokens: int = 64
) -> list[str]:
    """Return the replies of one conversation; each turn's messages hold those before."""
    messages: list[Message] = [{"role": "system", "content": "Answer."}]
    said: list[str] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {number}, turn {turn}?"})
        sampling = Sampling(seed=number, max_tokens=tokens)
        reply = await caller.complete(model, messages, sampling, key=f"q{number}/{turn}")
        assert isinstance(reply.content, str)
        said.append(reply.content)
        messages.append({"role": "assistant", "content": reply.content})
    return said


async def talk(
    caller: Caller, model: Model, numbers: Iterable[int], *, concurrency: int = 32, **more: Any
) -> Outcome:
    """Run conversations as jobs; close the model."""
    seen = Outcome()

    async def work(number: int) -> None:
        assert number not in seen.done
        try:
            seen.done[number] = await converse(caller, model, number, **more)
        except Exception as error:
            if isinstance(error, Stopped) or stop_reason(error):
                raise
            seen.errors[number] = error

    interrupted, stopped = await run_jobs(numbers, work, concurrency)
    seen.summary = Summary(len(seen.done), len(seen.errors), interrupted, stopped)
    await model.aclose()
    return seen


def run_talk(*args: Any, **more: Any) -> Outcome:
    """`talk` in a loop of its own."""
    return asyncio.run(talk(*args, **more))
