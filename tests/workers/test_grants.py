"""Workers share one ledger: what is granted and spent never passes the cap, and what is not used
comes back."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from convbench.engine.booking import Booked
from convbench.engine.budget import NOTHING
from convbench.engine.grants import GrantedBudget, Ledger
from convbench.engine.need import Estimate, Size
from convbench.errors import BudgetError, RunError
from convbench.models.scripted import scripted

SIZE = Size(text=400, prompt=400, reply=100)


def budget(folder: Path, name: str) -> GrantedBudget:
    found = GrantedBudget(Ledger(folder), patience_s=5.0)
    found.begin(name, NOTHING, lambda *_: NOTHING)
    return found


async def spend(mine: GrantedBudget, each: int, draw: random.Random) -> int:
    """Make calls until the budget refuses; return the tokens they took."""
    model = scripted("policy")
    total = 0

    async def call() -> None:
        nonlocal total
        rates = mine.rates(model)
        await mine.reserve(rates, SIZE)
        await asyncio.sleep(draw.uniform(0, 0.002))
        used = draw.randint(each // 2, each)
        total += used
        rates.learn(SIZE, used * 0.8, used * 0.2, 0.0)
        mine.book(Booked(used, 0.0))
        mine.release(rates, SIZE)

    async def line() -> None:
        while True:
            await call()

    found = await asyncio.gather(*(line() for _ in range(4)), return_exceptions=True)
    assert all(isinstance(error, BudgetError) for error in found), found
    return total


def test_several_workers_never_pass_the_cap_and_use_it_up(tmp_path: Path) -> None:
    cap = 60_000
    Ledger(tmp_path).cap(None, cap)
    totals: dict[str, int] = {}

    def work(number: int) -> None:
        mine = budget(tmp_path, f"{number:05}.1")
        totals[str(number)] = asyncio.run(spend(mine, 300, random.Random(number)))
        mine.end()

    crowd = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    account = Ledger(tmp_path).read()
    assert account.open == {}
    assert account.spent_tokens == sum(totals.values()) <= cap
    assert account.spent_tokens > cap - 3 * 500, "what one did not use, another did"


def test_a_grant_of_the_dead_is_settled_by_what_is_told_of_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.cap(None, 1000)
    ledger.begin("00001.1", NOTHING, lambda *_: NOTHING)
    given, others = ledger.more("00001.1", Estimate(400, 0.0))
    assert (given.tokens, others) == (400, False)
    ledger.begin("00002.1", NOTHING, lambda *_: NOTHING)
    assert ledger.more("00002.1", Estimate(700, 0.0)) == (NOTHING, True)
    ledger.begin("00001.2", Estimate(150, 0.0), lambda name, grant: Estimate(150, 0.0))
    assert ledger.read().spent_tokens == 150
    assert ledger.more("00002.1", Estimate(700, 0.0))[0].tokens == 700
    ledger.end("00001.1", Estimate(999, 0.0))  # the zombie's word
    assert ledger.read().spent_tokens == 150
    with pytest.raises(RunError, match=r"00001\.1 was taken over"):
        ledger.more("00001.1", Estimate(1, 0.0))


def test_without_a_limit_all_is_counted_and_nothing_asked(tmp_path: Path) -> None:
    mine = budget(tmp_path, "00000.1")
    assert not mine.limited
    mine.book(Booked(70, 0.5))
    mine.end()
    assert Ledger(tmp_path).read().spent_tokens == 70
    assert Ledger(tmp_path).read().spent_usd == 0.5


def test_a_fence_is_asked_before_each_call(tmp_path: Path) -> None:
    mine = budget(tmp_path, "00000.1")
    mine.sending()

    def shut() -> None:
        raise RunError("taken over")

    mine.fence = shut
    with pytest.raises(RunError, match="taken over"):
        mine.sending()
