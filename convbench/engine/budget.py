"""One ledger of dollars and tokens for a whole command, checked before each call."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from convbench.engine.booking import Booked
from convbench.engine.gate import idle
from convbench.engine.need import Estimate, Rates, Size
from convbench.errors import BudgetError, UsageError
from convbench.models.batch import Batches
from convbench.models.model import Model

NOTHING = Estimate(0.0, 0.0)


@dataclass
class Sum:
    """Attempts and what they were booked with."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0

    def add(self, booked: Booked) -> None:
        """Count an attempt."""
        self.attempts += 1
        self.tokens += booked.tokens
        self.usd += booked.usd or 0.0


class Budget:
    """Dollars and tokens that all calls of a command share, over all its runs; None is no limit.

    A call is let through only if what is spent and what the calls in flight are held for, its own
    share among them, stay within the limit, or if it goes alone and what it will likely use does:
    so the limit is passed by one reply at most, however the provider bills, unless many calls that
    are let through at once turn out dearer than any before. Where only calls in flight stand in
    the way it waits for them; where the spent money does, BudgetError is raised.

    Threads with loops of their own may share it; where it is limited, one loop at a time.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None) -> None:
        self.limit(usd, tokens)
        self.all, self.before, self.lost, self.assumed = Sum(), Sum(), Sum(), Sum()
        """All that is spent; of it, what was before this command, what gave no reply, and what
        was booked without a word of the provider."""
        self.unpriced = False
        """True once a call's price was not known."""
        self.fence: Callable[[], None] = _open
        """Called before each attempt is sent; raises where none may go any more."""
        self._counted: set[str] = set()
        self._rates: dict[str, Rates] = {}
        self._flying = 0
        self._sent = {"usd": 0.0, "tokens": 0.0}
        self._waiting: deque[tuple[Rates, Size, asyncio.Future[None]]] = deque()
        self._lock = threading.RLock()

    @property
    def limited(self) -> bool:
        """True where there is a limit."""
        return self.usd is not None or self.tokens is not None

    @property
    def spent_usd(self) -> float:
        """Known dollars spent, before this command too."""
        return self.all.usd

    @property
    def spent_tokens(self) -> int:
        """Tokens spent, before this command too."""
        return self.all.tokens

    def check(self, model: Model) -> None:
        """Raise BudgetError where dollars are limited and the model's price is unknown."""
        if self.usd is not None and not model.priced:
            raise BudgetError(
                f"--budget {self.usd:g}: the price of {model.ref} is unknown; "
                "limit tokens instead, e.g. --budget-tokens 2000000"
            )

    def limit(self, usd: float | None, tokens: int | None) -> None:
        """Set the limits. BudgetError for one that is no number."""
        if usd is not None and math.isnan(usd):
            raise UsageError("--budget: found nan; expected dollars, e.g. 5 or 0.25")
        self.usd, self.tokens = usd, tokens

    def spend(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Count what was spent before, e.g. by the same run before it was resumed."""
        with self._lock:
            for account in (self.all, self.before):
                account.tokens += tokens
                account.usd += usd

    def count(self, name: str, tokens: int, usd: float) -> None:
        """Count what a run had spent before this command, once."""
        with self._lock:
            if name not in self._counted:
                self._counted.add(name)
                self.spend(tokens, usd)

    def knows(self, name: str) -> bool:
        """Return whether this run was counted."""
        return name in self._counted

    def rates(self, model: Model) -> Rates:
        """Return what is known of how a model bills."""
        with self._lock:
            if model.ref not in self._rates:
                self._rates[model.ref] = Rates(model.price)
            return self._rates[model.ref]

    def batch_rates(self, batches: Batches) -> Rates:
        """Return what is known of how a model bills in batches."""
        with self._lock:
            return self._rates.setdefault(f"{batches.ref} in batches", Rates(batches.price))

    def hold_sent(self, need: Estimate, *, alone: bool = False, sent: bool = False) -> bool:
        """Hold the worst case of a call that goes in a batch; return whether it fits beside all
        that is held. Where it is `alone` in flight it may go if what is spent leaves room for
        what it will likely use; one that was `sent` already is held in any case."""
        with self._lock:
            usd, tokens = self._sent["usd"] + (need.usd or 0.0), self._sent["tokens"] + need.tokens
            if not sent and self.limited:
                if alone:
                    self._refuse(need)
                elif not self._fits(need):
                    return False
            self._sent["usd"], self._sent["tokens"] = usd, tokens
            return True

    def release_sent(self, need: Estimate) -> None:
        """Hold it no longer; the next may go."""
        with self._lock:
            self._sent["usd"] -= need.usd or 0.0
            self._sent["tokens"] -= need.tokens
            if self._sent["tokens"] < 1:  # what sums of fractions leave over
                self._sent = {"usd": 0.0, "tokens": 0.0}
            self._wake()

    async def reserve(self, rates: Rates, size: Size) -> None:
        """Hold what a call may use, or raise BudgetError because the call could pass the limit."""
        with self._lock:
            if not self._waiting and self._admitted(rates, size):
                return
        with idle():
            await self._queue(rates, size)

    async def _queue(self, rates: Rates, size: Size) -> None:
        """Wait until one that is released makes room."""
        with self._lock:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((rates, size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(rates, size)
            raise

    def release(self, rates: Rates, size: Size) -> None:
        """Hold no longer what a call may use; the next may go."""
        with self._lock:
            rates.hold(size, -1)
            self._flying -= 1
            self._wake()

    def book(self, booked: Booked, *, lost: bool = False) -> None:
        """Count an attempt that was made; before it is released."""
        with self._lock:
            self.all.add(booked)
            self.unpriced = self.unpriced or booked.usd is None
            if lost:
                self.lost.add(booked)
            if booked.assumed:
                self.assumed.add(booked)

    def _admitted(self, rates: Rates, size: Size) -> bool:
        """Hold a call if it may go now; BudgetError where no waiting helps."""
        if self.limited:
            self._refuse(rates.likely(size))
        rates.hold(size, 1)
        if (self._flying or self._sent["tokens"] > 0) and self.limited and not self._fits():
            rates.hold(size, -1)
            return False
        self._flying += 1
        return True

    def _fits(self, more: Estimate = NOTHING) -> bool:
        held = [more, *(rates.held() for rates in self._rates.values())]
        usd = self.all.usd + self._sent["usd"] + sum(each.usd or 0.0 for each in held)
        tokens = self.all.tokens + self._sent["tokens"] + sum(each.tokens for each in held)
        return (self.usd is None or usd <= self.usd) and (
            self.tokens is None or tokens <= self.tokens
        )

    def _wake(self) -> None:
        """Let those go that may, first come, first served."""
        while self._waiting:
            rates, size, waiter = self._waiting[0]
            try:
                if not waiter.done():
                    if not self._admitted(rates, size):
                        return
                    waiter.set_result(None)
            except BudgetError as error:
                waiter.set_exception(error)
            self._waiting.popleft()

    def _refuse(self, need: Estimate) -> None:
        if self.usd is not None and self.all.usd + (need.usd or 0.0) > self.usd:
            raise BudgetError(
                f"budget: ${self.all.usd:.4f} of ${self.usd:g} is spent and the next call may "
                f"cost ${need.usd or 0.0:.4f}; resume with a larger --budget"
            )
        if self.tokens is not None and self.all.tokens + need.tokens > self.tokens:
            raise BudgetError(
                f"budget: {self.all.tokens} of {self.tokens} tokens are spent and the next call "
                f"may use {need.tokens:.0f}; resume with a larger --budget-tokens"
            )


def _open() -> None:
    """Let any attempt go."""
