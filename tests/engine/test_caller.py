"""Calls against a real provider process that fails in every way it can."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Budget, Caller, Journal, RetryPolicy, Status
from convbench.engine.budget import Estimate
from convbench.engine.reply_cache import ReplyCache
from convbench.errors import BudgetError, FatalModelError
from convbench.models import open_model
from convbench.models.prices import Price
from convbench.models.scripted import ScriptedModel
from convbench.schema import Completion
from tests.helpers.refused import Refusing, counts, openai, reply
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
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").open()]
    replies = [line for line in lines if "content" in line]
    assert len({line["key"] for line in replies}) == len(replies) == 180
    lost = [line["lost"] for line in lines if "lost" in line]
    assert len(lost) + len(replies) == len(lines)
    assert any("HTTP 500" in why for why in lost)
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
    """A call of 4,096 tokens that hangs is given up after 4 x 0.05 s; up to 1,024 it has the time
    that is set and no more."""
    plan = Plan(poison={"question 0,": "hang"}, hang_s=60)
    said = []
    with Provider(plan) as provider:
        for tokens in (4096, 64):
            caller = Caller(retry=RetryPolicy(timeout_s=0.05, tries=1))
            model = open_model("openai/any", api_base=provider.api_base)
            said.append(str(run_talk(caller, model, range(1), tokens=tokens).errors[0]))
    assert "no reply within 0.2 s" in said[0]
    assert "no reply within 0.05 s" in said[1]


def test_complete_goes_on_after_a_burst_of_429_and_500() -> None:
    schedule = {str(number): "429" if number % 2 else "500" for number in range(1, 65)}
    with Provider(Plan(schedule=schedule, latency_s=0.01)) as provider:
        caller = Caller(retry=RetryPolicy(concurrency=32, backoff_s=0.02))
        model = open_model("openai/any", api_base=provider.api_base)
        assert len(run_talk(caller, model, range(100)).done) == 100
        assert provider.stats.calls == 364


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
    budget = Budget(tokens=20_000)
    with Provider(Plan(latency_s=0.005)) as provider:
        caller = Caller(Journal(tmp_path / "calls.jsonl"), budget)
        model = open_model("openai/any", api_base=provider.api_base)
        seen = run_talk(caller, model, range(500))
        used = provider.stats.prompt_tokens + provider.stats.completion_tokens
    assert isinstance(seen.summary.stopped, BudgetError)
    assert "--budget-tokens" in str(seen.summary.stopped)
    assert seen.errors == {}
    assert used == budget.all.tokens <= 20_000
    assert used > 19_000


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
    assert budget.all.tokens > answered + 64  # a hang may have cost all it was allowed


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
    with Provider(Plan(faults={"429_retry_after": 1.0}, retry_after=30)) as provider:
        status = Status()
        caller = Caller(status=status, retry=RetryPolicy(patience_s=0.0, retry_after_s=0.3))
        model = open_model("openai/any", api_base=provider.api_base)
        run_talk(caller, model, [1], turns=1)
    assert [name.partition(":")[0] for name in status.paused] == ["any at 127.0.0.1"]


def test_no_journal_keeps_nothing() -> None:
    with Provider() as provider:
        model = open_model("openai/any", api_base=provider.api_base)
        assert run_talk(Caller(), model, [1]).done[1] == run_talk(Caller(), model, [1]).done[1]
    assert Completion("x").cost_usd is None


def test_a_prompt_refused_first_fails_its_own_conversation() -> None:
    """One call at a time, the first prompt refused for a reason that nobody knows."""

    def bad(body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        if "question 0," in json.dumps(body):
            return 400, {}, openai("We do not like this one.")
        return 200, {}, reply(usage=counts(20, 5))

    with Refusing(bad) as server:
        model = open_model("openai/any", api_base=f"{server.url}/v1")
        seen = run_talk(Caller(retry=QUICK), model, range(8), concurrency=1, turns=1)
    assert sorted(seen.done) == list(range(1, 8))
    assert "We do not like this one." in str(seen.errors[0])
    assert seen.summary is not None
    assert seen.summary.stopped is None


def test_an_endpoint_that_refuses_its_first_ten_calls_stops_the_run() -> None:
    with Refusing(lambda _: (400, {}, openai("No such field: beam"))) as server:
        model = open_model("openai/any", api_base=f"{server.url}/v1")
        seen = run_talk(Caller(retry=QUICK), model, range(100), concurrency=1, turns=1)
    assert len(server.bodies) == 10
    assert "the first 10 calls were refused" in str(seen.summary.stopped)
    assert "No such field: beam" in str(seen.summary.stopped)


@pytest.mark.parametrize(
    ("body", "tries"),
    [(reply("", "length", counts(20, 0)), 1), (reply("", "stop", counts(20, 0)), 3)],
)
def test_an_empty_reply_is_paid_at_most_three_times(body: Any, tries: int) -> None:
    with Refusing(lambda _: (200, {}, body)) as server:
        model = open_model("openai/any", api_base=f"{server.url}/v1")
        seen = run_talk(Caller(retry=QUICK), model, range(2), turns=1)
    assert len(server.bodies) == 2 * tries
    assert len(seen.errors) == 2


def test_a_reply_that_failed_is_asked_for_again_and_both_are_paid() -> None:
    texts = set[str]()

    def first_broken(body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        text = json.dumps(body["messages"])
        if text in texts:
            return 200, {}, reply("The answer is A.", usage=counts(20, 5))
        texts.add(text)
        return 200, {}, reply("The answer", "error", usage=counts(20, 2))

    budget = Budget(tokens=10_000)
    with Refusing(first_broken) as server:
        model = open_model("openai/any", api_base=f"{server.url}/v1")
        seen = run_talk(Caller(budget=budget, retry=QUICK), model, range(3), turns=1)
    assert set(map(tuple, seen.done.values())) == {("The answer is A.",)}
    assert (budget.all.tokens, budget.lost.tokens) == (3 * 47, 3 * 22)


def test_a_killed_command_forgets_no_cost(tmp_path: Path) -> None:
    """What was held when the process ended counts, until the reply is there."""
    journal = Journal(tmp_path / "calls.jsonl")
    need = Estimate(800, 0.25)
    name = journal.hold("a", need)
    journal.hold("b", need)
    journal.append("a", "h", Completion("x", "stop", 100, 5, 0.01), name)
    assert Journal(tmp_path / "calls.jsonl").total_cost() == (905, 0.26)
    assert Journal(tmp_path / "calls.jsonl").load_calls() == 1


def test_a_reply_from_the_cache_counts_no_tokens(tmp_path: Path) -> None:
    with Provider() as provider:
        for run in ("one", "two"):
            cache = ReplyCache(tmp_path / "replies.db")
            journal = Journal(tmp_path / run / "calls.jsonl")
            (tmp_path / run).mkdir()
            caller = Caller(journal, cache=cache)
            model = open_model("openai/any", api_base=provider.api_base)
            run_talk(caller, model, range(3))
            cache.close()
        assert provider.stats.calls == 9
    assert Journal(tmp_path / "one" / "calls.jsonl").total_cost()[0] > 0
    assert Journal(tmp_path / "two" / "calls.jsonl").total_cost() == (0, 0.0)
    assert caller.status.cached == 9


def test_a_dear_model_under_a_small_budget_has_many_calls_in_flight() -> None:
    """A judge at $5 and $25 a million, 32 allowed at once: what is left pays for some twenty."""
    price = Price(5e-6, 25e-6)
    flying, most = 0, 0

    class Judge(ScriptedModel):
        name, priced, headroom = "judge", True, 8192

        def __init__(self) -> None:
            super().__init__()
            self.ref = "anthropic/judge"

        def price(self, prompt: int, reply: int) -> float | None:
            return price.cost_of(prompt, reply)

        async def complete(self, messages: Any, sampling: Any, *, key: str) -> Completion:
            nonlocal flying, most
            flying += 1
            most = max(most, flying)
            await asyncio.sleep(0.01)
            flying -= 1
            return Completion("9", "stop", 800, 200, price.cost_of(800, 200))

    budget = Budget(usd=5.0)
    caller = Caller(budget=budget, retry=RetryPolicy(concurrency=32))
    seen = run_talk(caller, Judge(), range(273), turns=1, concurrency=48)
    assert len(seen.done) == 273
    assert most >= 16
    assert budget.all.usd == pytest.approx(273 * 0.009)
