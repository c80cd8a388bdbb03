"""The budget stops before the call that could pass it, and waits where only others' do."""

from __future__ import annotations

import asyncio

import pytest

from convbench.engine.budget import Budget, Estimate, estimate
from convbench.errors import BudgetError
from convbench.models import open_model
from convbench.schema import Sampling

LOCAL = "http://127.0.0.1:9/v1"


def test_an_unknown_price_with_a_dollar_budget_is_refused_with_the_alternative() -> None:
    model = open_model("openai/nobody-knows-this", api_base=LOCAL)
    with pytest.raises(BudgetError, match=r"openai/nobody-knows-this is unknown.*--budget-tokens"):
        Budget(usd=1).check(model)
    Budget(tokens=1).check(model)


def test_the_estimate_is_on_the_high_side() -> None:
    model = open_model("openai/gpt-4o-mini", api_base=LOCAL)
    need = estimate(model, [{"role": "user", "content": "word " * 300}], Sampling(max_tokens=100))
    assert 400 < need.tokens < 700
    assert need.usd == pytest.approx((need.tokens - 100) * 0.15e-6 + 100 * 0.6e-6)


def test_spent_money_refuses_at_once() -> None:
    budget = Budget(usd=1.0)
    budget.spend(usd=0.95)
    with pytest.raises(BudgetError, match=r"\$0\.9500 of \$1 .* --budget"):
        asyncio.run(budget.reserve(Estimate(10, 0.06)))


def test_reservations_wait_and_are_settled() -> None:
    async def main() -> list[str]:
        budget, order = Budget(tokens=100), []
        await budget.reserve(Estimate(80, None))

        async def second() -> None:
            await budget.reserve(Estimate(40, None))
            order.append("second got in")

        waiting = asyncio.ensure_future(second())
        await asyncio.sleep(0.01)
        order.append("first settles")
        budget.settle(Estimate(80, None), tokens=60)
        await waiting
        assert budget.spent_tokens == 60
        with pytest.raises(BudgetError):
            await budget.reserve(Estimate(41, None))
        return order

    assert asyncio.run(main()) == ["first settles", "second got in"]
