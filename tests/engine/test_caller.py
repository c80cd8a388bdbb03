"""Calls against a real provider process that fails in every way it can."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Budget, Caller, Journal, RetryPolicy, Status
from convbench.errors import BudgetError, FatalModelError
from convbench.models import open_model
from convbench.schema import Completion
from tests.helpers.talk import QUICK, run_talk
from tests.support.chat.plan import Plan
from tests.support.provider import Provider
from tests.support.serve import spawn

MIXED = {
    "429": 0.03, "429_retry_after": 0.02, "500": 0.03, "502": 0.02, "503": 0.02, "reset": 0.02,
    "hang": 0.01, "truncated": 0.02, "partial": 0.01, "empty": 0.01, "null": 0.01,
}  # fmt: skip
"""Faults in 20% of the calls."""


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/_stats") as reply:
        found: dict[str, Any] = json.load(reply)
    return found


def test_a_fifth_of_all_calls_fails_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    arguments = [f"--fault={kind}={share}" for kind, share in MIXED.items()]
    with spawn("provider", *arguments, "--plan", '{"retry_after": 0.05}') as url:
        caller = Caller(Journal(tmp_path / "calls.jsonl"), retry=QUICK)
        model = open_model("openai/any", api_base=f"{url}/v1")
        seen = run_talk(caller, model, range(60))
        told = stats(url)
    assert seen.errors == {}
    assert sorted(seen.done) == list(range(60))
    assert told["calls"] - sum(told["faults"].values()) == 180
    assert sum(told["faults"].values()) > 20
    assert caller.status.calls == 180
    assert caller.status.retries == sum(told["faults"].values())
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").open()]
    assert len({line["key"] for line in lines}) == len(lines) == 180
    clean = Caller()
    with Provider() as provider:
        again = run_talk(clean, open_model("openai/any", api_base=provider.api_base), range(60))
    assert again.done == seen.done


def test_every_hang_is_bounded() -> None:
    plan = Plan(poison={"question 3,": "hang"}, hang_s=60)
    policy = RetryPolicy(timeout_s=0.6, tries=3, backoff_s=0.01)
    with Provider(plan) as provider:
        start = time.monotonic()
        seen = run_talk(
            Caller(retry=policy), open_model("openai/any", api_base=provider.api_base), range(6)
        )
        took = time.monotonic() - start
    assert sorted(seen.done) == [0, 1, 2, 4, 5]
    assert "no reply within 0.6 s (after 3 tries)" in str(seen.errors[3])
    assert 1.8 <= took < 30


def test_a_long_reply_has_longer_in_proportion() -> None:
    """64 tokens are four times `long_reply`: a call that hangs is given up after 4 x 0.05 s; with
    the usual one it has the time that is set and no more."""
    plan = Plan(poison={"question 0,": "hang"}, hang_s=60)
    said = []
    with Provider(plan) as provider:
        for long in (16, RetryPolicy().long_reply):
            policy = RetryPolicy(timeout_s=0.05, tries=1, long_reply=long)
            model = open_model("openai/any", api_base=provider.api_base)
            said.append(str(run_talk(Caller(retry=policy), model, range(1)).errors[0]))
    assert "no reply within 0.2 s" in said[0]
    assert "no reply within 0.05 s" in said[1]
    assert [RetryPolicy().seconds_for(tokens) for tokens in (64, 1024, 8192)] == [120, 120, 960]


def test_429_shrinks_concurrency_and_it_recovers() -> None:
    schedule = {str(number): "429" for number in range(1, 33)}
    with Provider(Plan(schedule=schedule, latency_s=0.01)) as provider:
        caller = Caller(retry=RetryPolicy(concurrency=32, backoff_s=0.02))
        model = open_model("openai/any", api_base=provider.api_base)
        lowest = 32

        def numbers() -> Any:
            nonlocal lowest
            for number in range(150):
                lowest = min(lowest, caller.limiter_of(model).state.limit)
                yield number

        seen = run_talk(caller, model, numbers())
        assert len(seen.done) == 150
        assert lowest < 32
        assert caller.limiter_of(model).state.limit == 32


def test_500_does_not_shrink_concurrency() -> None:
    schedule = {str(number): "500" for number in range(1, 33)}
    with Provider(Plan(schedule=schedule)) as provider:
        caller = Caller(retry=QUICK)
        model = open_model("openai/any", api_base=provider.api_base)
        assert len(run_talk(caller, model, range(20)).done) == 20
        assert caller.status.retries == 32
        assert caller.limiter_of(model).state.limit == QUICK.concurrency


def test_retry_after_is_respected() -> None:
    with Provider(Plan(schedule={"1": "429_retry_after"}, retry_after=0.5)) as provider:
        caller = Caller(retry=RetryPolicy(backoff_s=0.001))
        model = open_model("openai/any", api_base=provider.api_base)
        start = time.monotonic()
        assert len(run_talk(caller, model, [0], turns=1).done) == 1
        assert time.monotonic() - start >= 0.5


def test_an_endless_retry_after_is_cut() -> None:
    with Provider(Plan(schedule={"1": "429_retry_after"}, retry_after=86400)) as provider:
        caller = Caller(retry=RetryPolicy(retry_after_s=0.1))
        model = open_model("openai/any", api_base=provider.api_base)
        assert len(run_talk(caller, model, [0], turns=1).done) == 1


def test_finished_calls_are_replayed_and_only_they(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Provider() as provider:

        def model() -> Any:
            return open_model("openai/any", api_base=provider.api_base)

        first = run_talk(Caller(Journal(path)), model(), range(10))
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:17]) + lines[17][:25])
        provider.reset()
        journal = Journal(path)
        journal.load_calls()
        caller = Caller(journal)
        second = run_talk(caller, model(), range(10))
        assert second.done == first.done
        assert caller.status.replayed == 17
        assert provider.stats.calls == 13


def test_the_budget_stops_before_the_call_that_would_pass_it(tmp_path: Path) -> None:
    budget = Budget(tokens=3000)
    with Provider(Plan(latency_s=0.005)) as provider:
        caller = Caller(Journal(tmp_path / "calls.jsonl"), budget)
        model = open_model("openai/any", api_base=provider.api_base)
        seen = run_talk(caller, model, range(500))
        used = provider.stats.prompt_tokens + provider.stats.completion_tokens
    assert isinstance(seen.summary.stopped, BudgetError)
    assert "--budget-tokens" in str(seen.summary.stopped)
    assert seen.errors == {}
    assert used == budget.spent_tokens <= 3000
    assert used > 2700
    assert len((tmp_path / "calls.jsonl").read_bytes().splitlines()) == caller.status.calls


def test_dollars_are_counted_and_stop_too() -> None:
    with Provider() as provider:
        caller = Caller(budget=Budget(usd=0.002))
        model = open_model("openai/gpt-4o-mini", api_base=provider.api_base)
        seen = run_talk(caller, model, range(500), concurrency=4)
        prompt, reply = provider.stats.prompt_tokens, provider.stats.completion_tokens
    assert isinstance(seen.summary.stopped, BudgetError)
    assert caller.status.cost_usd == pytest.approx(prompt * 0.15e-6 + reply * 0.6e-6)
    assert caller.status.cost_usd <= 0.002


def test_an_unknown_price_is_refused_before_anything_is_sent() -> None:
    with Provider() as provider:
        model = open_model("openai/any", api_base=provider.api_base)
        seen = run_talk(Caller(budget=Budget(usd=5)), model, range(3))
        assert provider.stats.calls == 0
    assert "--budget-tokens" in str(seen.summary.stopped)


def test_an_empty_reply_counts_in_the_budget_though_it_failed() -> None:
    with Provider(Plan(schedule={"1": "empty", "2": "hang"}, hang_s=9)) as provider:
        budget = Budget(tokens=1_000_000)
        caller = Caller(budget=budget, retry=RetryPolicy(timeout_s=0.2, backoff_s=0.01))
        model = open_model("openai/any", api_base=provider.api_base)
        run_talk(caller, model, [0], turns=1)
        answered = provider.stats.prompt_tokens + provider.stats.completion_tokens
    assert budget.spent_tokens > answered + 64  # a hang may have cost all it was allowed


def test_a_dead_provider_stops_the_run_instead_of_failing_every_job() -> None:
    policy = RetryPolicy(tries=2, backoff_s=0.01, dead=5)
    with Provider(Plan(faults={"500": 1.0})) as provider:
        model = open_model("openai/any", api_base=provider.api_base)
        seen = run_talk(Caller(retry=policy), model, range(1000), concurrency=4)
        assert provider.stats.calls < 40
    assert isinstance(seen.summary.stopped, FatalModelError)
    assert "calls in a row failed" in str(seen.summary.stopped)


def test_nobody_listening_is_said_at_once() -> None:
    model = open_model("openai/any", api_base="http://127.0.0.1:9/v1")
    seen = run_talk(Caller(retry=QUICK), model, range(1000))
    assert "cannot connect to http://127.0.0.1:9/v1" in str(seen.summary.stopped)
    assert seen.done == {}


def test_the_status_says_what_it_waits_for() -> None:
    from convbench.engine.progress import waiting_text

    with Provider(Plan(faults={"429_retry_after": 1.0}, retry_after=30)) as provider:
        status = Status()
        caller = Caller(status=status, retry=RetryPolicy(patience_s=0.0, retry_after_s=0.3))
        model = open_model("openai/any", api_base=provider.api_base)
        run_talk(caller, model, [1], turns=1)
        said = waiting_text(status)
    assert "rate limit until" in said
    assert "concurrency 1 of 64" in said


def test_no_journal_keeps_nothing() -> None:
    with Provider() as provider:
        model = open_model("openai/any", api_base=provider.api_base)
        assert run_talk(Caller(), model, [1]).done[1] == run_talk(Caller(), model, [1]).done[1]
    assert Completion("x").cost_usd is None
