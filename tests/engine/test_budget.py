"""The budget stops before the call that could pass it, and waits where only others' do."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from convbench.engine.budget import Booking, Budget, CallSize, size_of, usual_prompt
from convbench.engine.caller import runs_here
from convbench.errors import BudgetError
from convbench.models import open_model
from convbench.models.model import Model
from convbench.models.tools import ToolsModel
from convbench.schema import Message, Sampling, ToolLimits

LOCAL = "http://127.0.0.1:9/v1"
CALL = CallSize(text=30, prompt=30, reply=10)


def mini() -> Model:
    return open_model("openai/gpt-4o-mini", api_base=LOCAL)


def test_an_unknown_price_with_a_dollar_budget_is_refused_with_the_alternative() -> None:
    model = open_model("openai/nobody-knows-this", api_base=LOCAL)
    with pytest.raises(BudgetError, match=r"openai/nobody-knows-this is unknown.*--budget-tokens"):
        Budget(usd=1).check_price(model)
    Budget(tokens=1).check_price(model)


@pytest.mark.parametrize("text", ["word " * 300, "我们讨论问题" * 80, "x+=1;" * 300, "🜁" * 300])
def test_a_prompt_has_no_more_tokens_than_its_bound(text: str) -> None:
    messages: list[Message] = [{"role": "user", "content": text}]
    size = size_of(mini(), messages, Sampling(max_tokens=100))
    assert size.prompt == len(text.encode()) + 16
    assert size.reply == 100
    assert usual_prompt(messages) < size.prompt


def test_the_bound_counts_the_schemas_of_tools_and_reply() -> None:
    messages: list[Message] = [{"role": "user", "content": "hi"}]
    schema = {"type": "object", "properties": {"score": {"type": "number"}}}
    bare = size_of(mini(), messages, Sampling())
    tools = size_of(mini(), messages, Sampling(tools=(schema,), reply_schema=schema))
    assert tools.prompt - bare.prompt == 2 * len(json.dumps(schema, separators=(",", ":")))
    assert tools.text == bare.text


def test_calls_of_tools_are_nobodys_bill() -> None:
    assert runs_here(ToolsModel([], ToolLimits()))
    assert runs_here(open_model("scripted:policy"))
    assert not runs_here(mini())


def test_the_bound_is_paid_at_the_price_and_at_what_replies_taught() -> None:
    rates = Budget(usd=1).rates_of(mini())
    assert rates.upper_bound(CALL).usd == pytest.approx(30 * 0.15e-6 + 10 * 0.6e-6)
    rates.learn_billing(CALL, prompt=60, reply=50, usd=None)
    assert rates.upper_bound(CALL).tokens == 30 * 2 + 10 * 5
    rates.learn_billing(CALL, prompt=3, reply=1, usd=None)
    assert rates.upper_bound(CALL).tokens == 30 * 2 + 10 * 5


def test_a_call_is_held_for_less_the_more_replies_there_are() -> None:
    rates = Budget(usd=1).rates_of(mini())
    rates.hold_call(CALL, 1)
    held = []
    for _ in range(600):
        held.append(rates.held_estimate().tokens)
        rates.learn_billing(CALL, prompt=10, reply=10, usd=None)
    assert held == sorted(held, reverse=True)
    assert held[0] == 64 * 40
    assert held[-1] == 4 * 40


def test_spent_money_refuses_at_once() -> None:
    budget = Budget(usd=1.0)
    budget.add_earlier(usd=0.99999)
    with pytest.raises(BudgetError, match=r"\$1\.0000 of \$1 .* --budget"):
        asyncio.run(budget.reserve_call(budget.rates_of(mini()), CALL))


def test_one_goes_alone_and_the_others_wait_for_it() -> None:
    async def main() -> list[str]:
        budget, order = Budget(tokens=100), []
        rates = budget.rates_of(mini())
        await budget.reserve_call(rates, CALL)

        async def second() -> None:
            await budget.reserve_call(rates, CALL)
            order.append("second got in")

        waiting = asyncio.ensure_future(second())
        await asyncio.sleep(0.01)
        order.append("first ends")
        budget.book_attempt(Booking(60, None))
        budget.release_call(rates, CALL)
        await waiting
        budget.book_attempt(Booking(1, None))
        budget.release_call(rates, CALL)
        with pytest.raises(BudgetError):
            await budget.reserve_call(rates, CALL)
        return order

    assert asyncio.run(main()) == ["first ends", "second got in"]


def test_who_is_cancelled_while_waiting_or_just_let_in_holds_nothing() -> None:
    async def main() -> None:
        budget = Budget(tokens=1000)
        rates = budget.rates_of(mini())
        await asyncio.wait_for(budget.reserve_call(rates, CALL), 1)
        tasks = [asyncio.ensure_future(budget.reserve_call(rates, CALL)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        budget.release_call(
            rates, CALL
        )  # lets the first in, which is cancelled before it hears of it
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert rates.held_estimate().tokens == 0
        await asyncio.wait_for(budget.reserve_call(rates, CALL), 1)

    asyncio.run(main())


class Slow(int):
    """A number that takes its time to be added, so that another thread comes in between."""

    def __radd__(self, other: int) -> int:
        time.sleep(0.001)
        return other + int(self)


class SlowName(str):
    """A name that takes its time to be looked up."""

    def __hash__(self) -> int:
        time.sleep(0.001)
        return str.__hash__(self)


def test_threads_of_cells_side_by_side_lose_no_call_of_their_one_ledger() -> None:
    """Each with a loop of its own, as the steps of an experiment are."""
    budget, call = Budget(), CallSize(text=30, prompt=Slow(30), reply=Slow(10))
    rates = budget.rates_of(mini())

    async def calls() -> None:
        for number in range(10):
            await budget.reserve_call(rates, call)
            budget.book_attempt(Booking(Slow(7), 0.5), lost=number == 0)
            budget.release_call(rates, CallSize(text=30, prompt=Slow(30), reply=Slow(10)))

    def cell(_: int) -> None:
        budget.count_earlier(SlowName("runs/shared"), 100, 1.0)
        asyncio.run(calls())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(cell, range(8)))
    assert (budget.all.attempts, budget.spent_tokens) == (80, 100 + 80 * 7)
    assert budget.spent_usd == pytest.approx(1.0 + 80 * 0.5)
    assert (budget.lost.attempts, budget.lost.tokens, budget.before.tokens) == (8, 56, 100)
    assert rates.held_estimate().tokens == 0
