"""The budget admits what is left can pay for, and stops before the call that could pass it."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from convbench.engine.budget import Budget, Estimate, call_estimate
from convbench.engine.caller import runs_here
from convbench.engine.progress import format_spend
from convbench.errors import BudgetError, Usage
from convbench.models import open_model
from convbench.models.model import Model
from convbench.models.prices import Price
from convbench.models.tools import ToolsModel
from convbench.schema import Message, Sampling, ToolLimits, usual_prompt

LOCAL = "http://127.0.0.1:9/v1"
CALL = Estimate(40, 0.4)


def cents(prompt: int, reply: int) -> float:
    """The price of a cent a token."""
    return (prompt + reply) / 100


def mini() -> Model:
    return open_model("openai/gpt-4o-mini", api_base=LOCAL)


def estimate(messages: list[Message], sampling: Sampling) -> Estimate:
    return call_estimate(messages, sampling, 0, mini().price)


def test_check_price_refuses_dollars_for_an_unknown_price() -> None:
    model = open_model("openai/nobody-knows-this", api_base=LOCAL)
    with pytest.raises(BudgetError, match=r"openai/nobody-knows-this is unknown.*--budget-tokens"):
        Budget(usd=1).check_price(model)
    Budget(tokens=1).check_price(model)


@pytest.mark.parametrize("text", ["word " * 300, "我们讨论问题" * 80, "x+=1;" * 300, "🜁" * 300])
def test_call_estimate_holds_a_token_a_byte_and_a_reply_at_full_length(text: str) -> None:
    messages: list[Message] = [{"role": "user", "content": text}]
    need = estimate(messages, Sampling(max_tokens=100))
    prompt, least = need.tokens - 100, len(text.encode()) + 16
    assert least <= prompt <= least + 3
    assert need.usd == Price(0.15e-6, 0.6e-6).cost_of(prompt, 100)
    assert usual_prompt(messages) < prompt


def test_call_estimate_counts_the_schemas_of_tools_and_reply() -> None:
    messages: list[Message] = [{"role": "user", "content": "hi"}]
    schema = {"type": "object", "properties": {"score": {"type": "number"}}}
    bare = estimate(messages, Sampling())
    tools = estimate(messages, Sampling(tools=(schema,), reply_schema=schema))
    assert tools.tokens - bare.tokens == 2 * len(json.dumps(schema, separators=(",", ":")))


def test_runs_here_says_whose_calls_nobody_bills() -> None:
    assert runs_here(ToolsModel([], ToolLimits()))
    assert runs_here(open_model("scripted:policy"))
    assert not runs_here(mini())


def test_hold_refuses_at_once_when_the_money_is_spent() -> None:
    budget = Budget(usd=1.0)
    budget.count_earlier("run", lambda: Estimate(0, 0.99))
    with pytest.raises(BudgetError, match=r"\$0\.9900 of \$1 .* may cost \$0\.4000.*--budget"):
        asyncio.run(budget.hold(CALL))


def test_hold_admits_as_many_as_fit_and_what_is_not_used_is_free_at_once() -> None:
    async def main() -> list[str]:
        budget, order = Budget(tokens=100), list[str]()
        await budget.hold(CALL)
        await budget.hold(CALL)

        async def third() -> None:
            await budget.hold(CALL)
            order.append("third got in")

        waiting = asyncio.ensure_future(third())
        await asyncio.sleep(0.01)
        order.append("first ends")
        budget.settle(CALL, Usage(3, 2, 0.0), cents)
        await waiting
        budget.settle(CALL, Usage(30, 10, 0.0), cents)
        budget.settle(CALL, Usage(30, 10, 0.0), cents)
        with pytest.raises(BudgetError, match=r"85 of 100 tokens are spent"):
            await budget.hold(CALL)
        return order

    assert asyncio.run(main()) == ["first ends", "third got in"]


def test_hold_serves_a_dear_call_in_its_turn_though_cheap_ones_would_fit() -> None:
    async def main() -> list[str]:
        budget, order = Budget(tokens=100), list[str]()

        async def call(name: str, tokens: int) -> None:
            await budget.hold(Estimate(tokens, None))
            order.append(name)
            await asyncio.sleep(0.01)
            budget.settle(Estimate(tokens, None), Usage(0, 0), cents)

        calls = [("a", 60), ("dear", 90), ("b", 10), ("c", 10)]
        await asyncio.gather(*(call(*each) for each in calls))
        return order

    assert asyncio.run(main()) == ["a", "dear", "b", "c"]


def test_hold_ends_in_an_error_when_no_end_of_others_can_make_room() -> None:
    async def main() -> None:
        budget = Budget(tokens=50)
        await budget.hold(CALL)
        waiting = [asyncio.ensure_future(budget.hold(CALL)) for _ in range(3)]
        await asyncio.sleep(0)
        budget.settle(CALL, Usage(30, 10), cents)
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, BudgetError) for one in ended)

    asyncio.run(main())


def test_hold_that_is_cancelled_waiting_or_just_admitted_holds_nothing() -> None:
    async def main() -> None:
        budget = Budget(tokens=40)
        await budget.hold(CALL)
        tasks = [asyncio.ensure_future(budget.hold(CALL)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        budget.settle(CALL, None, cents)  # admits the first, cancelled before it hears of it
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(budget.hold(CALL), 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("usage", "used", "assumed"),
    [
        (Usage(10, 5, 0.02), Estimate(15, 0.02), False),
        (Usage(10, 5), Estimate(15, 0.15), False),
        (Usage(), Estimate(40, 0.4), True),
        (Usage(10, None), Estimate(40, 0.4), True),
        (Usage(None, None, 0.03), Estimate(40, 0.03), True),
        (None, Estimate(0, 0.0), False),
    ],
)
def test_settle_books_what_is_reported_and_what_was_held_where_nothing_is(
    usage: Usage | None, used: Estimate, assumed: bool
) -> None:
    budget = Budget()
    asyncio.run(budget.hold(CALL))
    assert budget.settle(CALL, usage, cents) == (used, assumed)
    assert budget.all.attempts == (usage is not None)
    assert (budget.all.tokens, budget.all.usd) == (used.tokens, used.usd)
    assert bool(budget.assumed.attempts) == assumed
    assert ("with unreported usage" in format_spend(budget)) == assumed


def test_hold_across_threads_keeps_to_one_limit_and_loses_no_call() -> None:
    """Each with a loop of its own, as the steps of an experiment are."""
    budget = Budget(tokens=10_000)
    flying, most = [0], [0]

    async def one() -> None:
        await budget.hold(Estimate(1000, None))
        flying[0] += 1
        most[0] = max(most[0], flying[0])
        await asyncio.sleep(0.002)
        flying[0] -= 1
        budget.settle(Estimate(1000, None), Usage(5, 2, 0.5), cents)

    async def calls() -> None:
        budget.count_earlier("runs/shared", lambda: Estimate(100, 1.0))
        await asyncio.gather(*(one() for _ in range(20)))

    start = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: asyncio.run(calls()), range(8)))
    assert time.monotonic() - start < 30
    assert 5 <= most[0] <= 9
    assert (budget.all.attempts, budget.all.tokens) == (160, 100 + 160 * 7)
    assert budget.all.usd == pytest.approx(1.0 + 160 * 0.5)
    assert budget.before.tokens == 100
