"""What the calls of one command share."""

from __future__ import annotations

import asyncio
import time

from convbench.engine import Caller, RetryPolicy
from convbench.engine.session import Session
from convbench.models import open_model
from convbench.models.scripted import ScriptedModel
from tests.helpers.talk import run_talk
from tests.support.chat.plan import Plan
from tests.support.provider import Provider


def test_naming_adds_models_and_shares_the_rest() -> None:
    session = Session()
    more = session.naming("openai/a", None)
    assert (session.named, more.named) == (frozenset(), {"openai/a"})
    assert more.ledger is session.ledger
    assert more.pauses is session.pauses


def test_pauses_hold_back_the_callers_of_all_runs() -> None:
    session = Session()
    with Provider(Plan(schedule={"1": "429_retry_after"}, retry_after=0.6)) as provider:
        model = open_model("openai/any", api_base=provider.api_base)
        hasty = RetryPolicy(patience_s=-1.0)  # gives up at once
        first = run_talk(Caller(retry=hasty, pauses=session.pauses), model, [0], turns=1)
        start = time.monotonic()
        second = run_talk(Caller(pauses=session.pauses), model, [1], turns=1)
        took = time.monotonic() - start
    assert (list(first.errors), list(second.done)) == ([0], [1])
    assert took >= 0.5


def test_open_shares_a_model_that_its_last_user_closes() -> None:
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.ref)

    async def use() -> None:
        session = Session()
        async with session.open("a", Closing) as first:
            async with session.naming("more").open("a", Closing) as second:
                assert second is first
            async with session.open("b", Closing) as other:
                assert other is not first
            assert len(closed) == 1
        assert len(closed) == 2
        assert session.models == {}

    asyncio.run(use())
