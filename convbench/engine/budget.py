"""The ledger of dollars and tokens of a command: estimate, hold, settle.

    need = call_estimate(messages, sampling, model.headroom, model.price)
    await budget.hold(need)                         waits its turn for what others hold
    ... the call ...
    budget.settle(need, Usage(120, 40), model.price)    what it did not use is free again at once

As many calls are in flight as what is left can pay for, first come, first served.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from convbench.errors import BudgetError, Usage
from convbench.models.model import Model
from convbench.schema import Message, Sampling, usual_prompt

Price = Callable[[int, int], float | None]
"""The dollars of so many prompt and reply tokens; None if they are unknown."""


class Estimate(NamedTuple):
    """Tokens and dollars that a call may use; `usd` is None if the price is unknown."""

    tokens: int
    usd: float | None


def call_estimate(
    messages: Sequence[Message], sampling: Sampling, headroom: int, price: Price
) -> Estimate:
    """Return the most that a call uses: a token for each byte of its prompt and schemas, 16 for
    each message, and a reply of `max_tokens` plus the model's headroom."""
    prompt = 3 * usual_prompt(messages) + 4 * len(messages)
    schemas = filter(None, (*sampling.tools, sampling.reply_schema))
    prompt += sum(len(orjson.dumps(schema)) for schema in schemas)
    reply = sampling.max_tokens + headroom
    return Estimate(prompt + reply, price(prompt, reply))


@dataclass
class Spend:
    """A number of attempts, with their tokens and dollars; an unknown price adds 0."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0

    def add(self, used: Estimate, attempts: int = 1, sign: int = 1) -> None:
        """Add what some attempts used; with a sign of -1 take it away."""
        self.attempts += attempts
        self.tokens += sign * used.tokens
        self.usd += sign * (used.usd or 0.0)


class Budget:
    """Dollars and tokens that all calls of a command share, over all its runs and threads; None is
    no limit. It is passed only by what a provider bills beyond a token a byte and `max_tokens`."""

    def __init__(self, usd: float | None = None, tokens: int | None = None) -> None:
        self.usd, self.tokens = usd, tokens
        self.all, self.before, self.lost, self.assumed = Spend(), Spend(), Spend(), Spend()
        """Total spend; its parts before this command, without a usable reply, of unknown usage."""
        self.unpriced = False  # whether a call's price was not known
        self._held = Spend()
        self._turns: deque[tuple[Estimate, Future[None]]] = deque()
        self._counted: set[str] = set()
        self._lock = threading.RLock()

    @property
    def has_limit(self) -> bool:
        """Return True if dollars or tokens are limited."""
        return self.usd is not None or self.tokens is not None

    def check_price(self, model: Model) -> None:
        """Raise BudgetError if dollars are limited and the model's price is unknown."""
        if self.usd is not None and not model.priced:
            why = f"--budget {self.usd:g}: the price of {model.ref} is unknown"
            raise BudgetError(f"{why}; limit tokens instead, e.g. --budget-tokens 2000000")

    def count_earlier(self, name: str, cost: Callable[[], Estimate]) -> None:
        """Add what the run `name` had spent before this command, once."""
        with self._lock:
            if name not in self._counted:
                self._counted.add(name)
                spent = cost()
                self.all.add(spent, 0)
                self.before.add(spent, 0)

    async def hold(self, need: Estimate) -> None:
        """Wait for this call's turn, and hold what it may need until `settle`. Raise BudgetError if
        the first in turn does not fit though nothing is held."""
        with self._lock:
            if not self._turns and self.try_hold(need):
                return
            turn: Future[None] = Future()
            turn.set_running_or_notify_cancel()  # so that only `_release` ends it
            self._turns.append((need, turn))
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:  # free again as soon as it is its turn
            turn.add_done_callback(lambda _: self._release(need, turn.exception() is None))
            raise

    def _release(self, need: Estimate, is_held: bool = True) -> None:
        with self._lock:
            if is_held:
                self._held.add(need, -1, -1)
            try:
                while self._turns and self.try_hold(self._turns[0][0]):
                    self._turns.popleft()[1].set_result(None)
            except BudgetError as error:  # no end of another call can make room
                while self._turns:
                    self._turns.popleft()[1].set_exception(error)

    def try_hold(self, need: Estimate) -> bool:
        """Hold what a call may need and return True, if it fits next to what others hold; else
        return False, or raise BudgetError if nothing else is held."""
        with self._lock:
            usd = self.all.usd + (need.usd or 0.0)
            tokens = self.all.tokens + need.tokens
            if (self.usd is None or usd + self._held.usd <= self.usd + 1e-9) and (
                self.tokens is None or tokens + self._held.tokens <= self.tokens
            ):
                self._held.add(need)
                return True
            if self._held.attempts:
                return False
        found = f"{self.all.tokens} of {self.tokens} tokens are spent and the next call may use "
        found += f"{need.tokens}; resume with a larger --budget-tokens"
        if self.usd is not None and usd > self.usd:
            found = f"${self.all.usd:.4f} of ${self.usd:g} is spent and the next call may cost "
            found += f"${need.usd or 0.0:.4f}; resume with a larger --budget"
        raise BudgetError(f"budget: {found}")

    def take_up(self, need: Estimate) -> None:
        """Hold what an earlier command held, which counted as spent until now."""
        with self._lock:
            for account in (self.all, self.before) if self.has_limit else ():
                account.add(need, 0, -1)
            self._held.add(need)

    def settle(
        self, need: Estimate, usage: Usage | None, price: Price, *, lost: bool = False
    ) -> tuple[Estimate, bool]:
        """Release what a call held, book what it used, and return (that, whether it is assumed).
        A `usage` of None is not billed; an unreported count is booked at what was held. A `lost`
        call gave no usable reply."""
        used, assumed = Estimate(0, 0.0), False
        if usage is not None:
            prompt, reply, usd = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
            used, assumed = need, prompt is None or reply is None
            if prompt is not None and reply is not None:
                used = Estimate(prompt + reply, price(prompt, reply))
            used = used if usd is None else used._replace(usd=usd)
            with self._lock:
                self.unpriced = self.unpriced or used.usd is None
                for account in (self.all, *[self.lost] * lost, *[self.assumed] * assumed):
                    account.add(used)
        self._release(need)
        return used, assumed
