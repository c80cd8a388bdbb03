"""What a budget lets a provider charge: true spending against the cap, for tests and a table.

``python -m tests.helpers.bills`` prints the table, at 256 calls in flight.
"""

from __future__ import annotations

import asyncio
import base64
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convbench.engine import Budget, Caller, Journal, RetryPolicy, Status
from convbench.engine.budget import Estimate
from convbench.engine.jobs import run_jobs, stop_reason
from convbench.errors import ModelError
from convbench.models import open_model
from convbench.schema import Sampling
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

MODEL = "openai/gpt-4o-mini"
INPUT, OUTPUT = 0.15e-6, 0.6e-6
"""Dollars a token of it."""
ENGLISH = "the cat sat on the mat and looked at the door for a while. " * 6
CHINESE = "我们今天讨论一个关于自然语言处理的有趣问题并且给出答案。" * 12
RANDOM = base64.b64encode(random.Random(0).randbytes(600)).decode()
CODE = "".join(f"x{i}[{i}]+={{'k{i}':(a^{i})<<{i % 7}}};\n" for i in range(30))


@dataclass(frozen=True)
class Case:
    """One way of billing."""

    plan: dict[str, Any] = field(default_factory=dict)
    text: str = ENGLISH
    sessions: int = 1
    """Times the same command is typed, with one journal."""


def always(kind: str, **more: Any) -> Case:
    """Return a case in which every call goes so."""
    return Case({"faults": {kind: 1.0}, **more})


CASES = {
    "honest": Case(),
    "all reasoning": always("reasoning"),
    "content filter": always("filter"),
    "max_tokens ignored": always("endless"),
    "max_tokens ignored by a tenth": Case({"faults": {"endless": 0.1}}),
    "max_tokens ignored from the 40th call": Case(
        {"schedule": {str(number): "endless" for number in range(40, 9000)}}
    ),
    "max_tokens ignored, usage untold by half": Case({"faults": {"endless": 0.5, "untold": 0.5}}),
    "Chinese, 1.8 tokens a character": Case({"dense": 0.61}, CHINESE),
    "base64, 1 token a byte": Case({"dense": 1.0}, RANDOM),
    "code, 0.6 tokens a byte": Case({"dense": 0.6}, CODE),
    "4 tokens a byte": Case({"dense": 4.0}),
    "usage missing": always("untold"),
    "usage negative": always("negative"),
    "usage zero": always("zero"),
    "usage 10^18": always("huge"),
    "usage a fraction": always("float"),
    "usage NaN": always("nan"),
    "usage text": always("text"),
    "usage a list": always("list"),
    "cost said to be 0": always("free"),
    "choices empty": always("malformed"),
    "500 after billing": always("billed_500"),
    "disconnect after billing": always("billed_drop"),
    "body cut after billing": always("billed_truncated"),
    "a third lost after billing": Case({"faults": {"billed_500": 0.2, "billed_drop": 0.13}}),
    "lost, resumed four times": Case({"faults": {"billed_drop": 1.0}}, sessions=5),
}


@dataclass(frozen=True)
class Spent:
    """What a case cost. All in dollars."""

    true: float
    """What the provider charged."""
    counted: float
    """What the budget counted."""
    dearest: float
    """The dearest reply."""
    calls: int
    peak: int
    """Most calls in flight."""
    stopped: str


def spend(
    case: Case, cap: float, folder: Path, *, flight: int, calls: int, latency_s: float = 0.05
) -> Spent:
    """Make `calls` calls with `cap` dollars, at most `flight` at once; return what came of it."""
    plan = Plan(latency_s=latency_s).changed(case.plan)
    with Provider(plan) as provider:
        peak = 0
        for _ in range(case.sessions):
            budget = WatchedBudget(usd=cap)
            stopped = asyncio.run(_session(case, budget, folder, provider, flight, calls))
            peak = max(peak, budget.peak)
        stats = provider.stats
    return Spent(
        stats.billed_prompt * INPUT + stats.billed_reply * OUTPUT,
        budget.all.usd,
        stats.dearest_prompt * INPUT + stats.dearest_reply * OUTPUT,
        stats.calls,
        peak,
        stopped,
    )


class WatchedBudget(Budget):
    """A budget that knows how many calls were held at most: a reply that has left the provider is
    held until it is read here, which on a busy machine may take a while."""

    held = peak = 0

    def try_hold(self, need: Estimate) -> bool:
        """Hold, and count."""
        is_held = super().try_hold(need)
        self.held += is_held
        self.peak = max(self.peak, self.held)
        return is_held

    def settle(self, *arguments: Any, **more: Any) -> tuple[Estimate, bool]:
        """Count, and settle."""
        self.held -= 1
        return super().settle(*arguments, **more)


async def _session(
    case: Case, budget: Budget, folder: Path, provider: Provider, flight: int, calls: int
) -> str:
    journal = Journal(folder / "calls.jsonl")
    journal.load_calls()
    budget.count_earlier("calls", journal.total_cost)
    policy = RetryPolicy(concurrency=flight, tries=3, backoff_s=0.01, dead=10**6)
    caller = Caller(journal, budget, policy, Status())
    model = open_model(MODEL, api_base=provider.api_base)

    async def work(number: int) -> None:
        content = f"question {number}: {case.text}"
        sampling = Sampling(max_tokens=64, seed=number)
        try:
            await caller.complete(
                model, [{"role": "user", "content": content}], sampling, key=f"q{number}"
            )
        except ModelError as error:
            if stop_reason(error):
                raise

    _, stopped = await run_jobs(range(calls), work, flight)
    await model.aclose()
    journal.close()
    return str(stopped or "")


def main() -> None:
    """Print the table: caps that 40 and about 256 estimated calls fit in."""
    for cap in (0.002, 0.05):
        heads = ("true $", "true / cap", "replies over", "counted $", "calls", "peak in flight")
        print(f"| cap ${cap} | {' | '.join(heads)} |\n{'|---' * 7}|")
        for name, case in CASES.items():
            with tempfile.TemporaryDirectory() as folder:
                found = spend(case, cap, Path(folder), flight=256, calls=3000)
            over = max(0.0, found.true - cap) / (found.dearest or 1.0)
            print(
                f"| {name} | {found.true:.4f} | {found.true / cap:.2f} | {over:.1f} "
                f"| {found.counted:.4f} | {found.calls} | {found.peak} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
