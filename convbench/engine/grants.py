"""The ledger of a sharded run: what all workers together may spend, granted in parts.

What is settled and what is granted never come to more than the cap. A worker asks for more before
a call that its grant has no room for, gives back what it has not used when it is done with a
shard or has to wait, and a grant of a worker that is no more is settled by what its journal says,
where its machine is this one, else in full.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from convbench.engine.budget import NOTHING, Budget
from convbench.engine.need import Estimate, Rates, Size
from convbench.errors import BudgetError, RunError
from convbench.schema.noun import Noun
from convbench.store.exclusive import Register
from convbench.store.shape import checked

AGAIN_S = 0.3
"""Seconds between two looks at a ledger that others hold the rest of."""
SHARE = 16
"""A worker is granted one part of so many of what is left, or what it needs if that is more."""
Money = Field(default=0.0, ge=0, le=1e12, allow_inf_nan=False)


class Grant(Noun):
    """What a worker may spend on a shard."""

    usd: float = Money
    """Dollars."""
    tokens: float = Money
    """Tokens."""
    base_usd: float = Money
    """Dollars that the shard's journal held before."""
    base_tokens: float = Money
    """Tokens likewise."""
    idle: bool = False
    """Whether all of it is spent: its holder waits for more."""


class Account(Noun):
    """The state of a ledger."""

    cap_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Most dollars; null is no limit."""
    cap_tokens: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Most tokens."""
    spent_usd: float = Money
    """Dollars settled."""
    spent_tokens: float = Money
    """Tokens settled."""
    open: dict[str, Grant] = Field(default_factory=dict, max_length=100_000)
    """Grants by claim, e.g. `00007.3`."""

    def left(self) -> Estimate:
        """Return what is neither settled nor granted."""
        usd = self.spent_usd + sum(one.usd for one in self.open.values())
        tokens = self.spent_tokens + sum(one.tokens for one in self.open.values())
        return Estimate(
            math.inf if self.cap_tokens is None else max(0.0, self.cap_tokens - tokens),
            math.inf if self.cap_usd is None else max(0.0, self.cap_usd - usd),
        )


class Ledger:
    """The ledger of one run, shared by all its workers."""

    def __init__(self, folder: Path) -> None:
        self.register = Register(folder)

    def read(self) -> Account:
        """Return its state now."""
        return self._account(self.register.read()[1])

    def cap(self, usd: float | None, tokens: float | None, spent: Estimate = NOTHING) -> None:
        """Set the limits; `spent` is what went before a ledger was begun."""

        def step(account: Account) -> Account:
            update: dict[str, object] = {"cap_usd": usd, "cap_tokens": tokens}
            if account == Account():
                update |= {"spent_usd": spent.usd or 0.0, "spent_tokens": spent.tokens}
            return account.model_copy(update=update)

        self._change(step)

    def begin(self, name: str, base: Estimate, lost: Callable[[str, Grant], Estimate]) -> None:
        """Open the account of a claim. Those of the same shard that were never closed are settled
        with what `lost` says they spent."""
        shard = name.partition(".")[0]

        def step(account: Account) -> Account:
            old = {key: one for key, one in account.open.items() if key.partition(".")[0] == shard}
            spent = [lost(key, one) for key, one in old.items()]
            kept = {key: one for key, one in account.open.items() if key not in old}
            kept[name] = Grant(base_usd=base.usd or 0.0, base_tokens=base.tokens)
            return _spend(account, spent).model_copy(update={"open": kept})

        self._change(step)

    def more(self, name: str, need: Estimate) -> tuple[Estimate, bool]:
        """Grant a claim at least what it needs, or nothing. Return what was granted, and whether
        others hold some that they may give back."""
        found: tuple[Estimate, bool] = (NOTHING, False)

        def step(account: Account) -> Account:
            nonlocal found
            mine = account.open.get(name)
            if mine is None:
                raise RunError(f"{self.register.folder}: shard {name} was taken over by another")
            left = account.left()
            others = any(not one.idle for key, one in account.open.items() if key != name)
            if (need.usd or 0.0) > (left.usd or 0.0) or need.tokens > left.tokens:
                found = NOTHING, others
                return account
            given = Estimate(_part(need.tokens, left.tokens), _part(need.usd or 0.0, left.usd))
            found = given, others
            grant = mine.model_copy(
                update={"usd": mine.usd + (given.usd or 0.0), "tokens": mine.tokens + given.tokens,
                        "idle": False}
            )  # fmt: skip
            return account.model_copy(update={"open": {**account.open, name: grant}})

        self._change(step)
        return found

    def reduce(self, name: str, to: Estimate) -> None:
        """Give back what a claim was granted beyond this; its holder waits."""

        def step(account: Account) -> Account:
            mine = account.open.get(name)
            if mine is None:
                return account
            less = {"usd": min(mine.usd, to.usd or 0.0), "tokens": min(mine.tokens, to.tokens)}
            grant = mine.model_copy(update={**less, "idle": True})
            return account.model_copy(update={"open": {**account.open, name: grant}})

        self._change(step)

    def end(self, name: str, spent: Estimate) -> None:
        """Close a claim's account with what was spent on it; one that is settled already stays
        so."""

        def step(account: Account) -> Account:
            if name not in account.open:
                return account
            kept = {key: one for key, one in account.open.items() if key != name}
            return _spend(account, [spent]).model_copy(update={"open": kept})

        self._change(step)

    def _change(self, step: Callable[[Account], Account]) -> None:
        def changed(data: bytes) -> tuple[bytes, None]:
            return step(self._account(data)).model_dump_json().encode() + b"\n", None

        self.register.change(changed)

    def _account(self, data: bytes) -> Account:
        return checked(str(self.register.folder), data, Account) if data else Account()


def _spend(account: Account, spent: list[Estimate]) -> Account:
    usd = account.spent_usd + sum(one.usd or 0.0 for one in spent)
    tokens = account.spent_tokens + sum(one.tokens for one in spent)
    return account.model_copy(update={"spent_usd": usd, "spent_tokens": tokens})


def _part(need: float, left: float | None) -> float:
    """Return what is granted of what is left; nothing where there is no limit to keep."""
    if left is None or math.isinf(left):
        return 0.0
    return min(left, max(need, left / SHARE))


@dataclass
class _Claim:
    name: str
    usd: float
    tokens: float
    """What was spent by all claims when this one began."""
    granted: Estimate = NOTHING


class GrantedBudget(Budget):
    """A worker's own ledger, within what the run's grants it. Its limits are of all its claims
    together: what those before it spent, and what the one of now is granted."""

    usd: float | None = None
    tokens: int | None = None

    def __init__(self, ledger: Ledger | None, patience_s: float = 300.0) -> None:
        super().__init__()
        self.ledger = ledger
        self.patience_s = patience_s
        """Seconds to wait for what other workers may give back."""
        self.fence: Callable[[], None] = lambda: None
        """Raises where the shard is this worker's no more."""
        self._claim: _Claim | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._others = False
        self._waits_since: float | None = None

    def limit(self, usd: float | None, tokens: int | None) -> None:
        """The run's ledger knows the limits; those of single commands say nothing here."""

    def knows(self, name: str) -> bool:
        """The run's ledger holds what journals had before."""
        return True

    def sending(self) -> None:
        """Refuse to send where the shard is lost."""
        self.fence()

    def begin(self, name: str, base: Estimate, lost: Callable[[str, Grant], Estimate]) -> None:
        """Begin to spend on a claim."""
        self._claim = _Claim(name, self.all.usd, self.all.tokens)
        if self.ledger is None:
            return
        self.ledger.begin(name, base, lost)
        account = self.ledger.read()
        self.usd = None if account.cap_usd is None else self.all.usd
        self.tokens = None if account.cap_tokens is None else self.all.tokens

    def end(self) -> None:
        """Close the claim's account."""
        claim, self._claim = self._claim, None
        if self.ledger is not None and claim is not None:
            self.ledger.end(claim.name, self._spent(claim))

    def _spent(self, claim: _Claim) -> Estimate:
        return Estimate(self.all.tokens - claim.tokens, self.all.usd - claim.usd)

    def hold_sent(self, need: Estimate, *, alone: bool = False, sent: bool = False) -> bool:
        """As any budget's, with what the ledger still has."""
        if self.limited and not sent and not self._fits(need):
            self._grow(need)
        return super().hold_sent(need, alone=alone, sent=sent)

    def _admitted(self, rates: Rates, size: Size) -> bool:
        if not self.limited:
            return super()._admitted(rates, size)
        need = rates.likely(size)
        rates.hold(size, 1)
        fits = self._fits()
        rates.hold(size, -1)
        if not fits:
            self._grow(NOTHING, held=(rates, size))
        try:
            admitted = super()._admitted(rates, size)
        except BudgetError:
            if self._grow(need):
                admitted = super()._admitted(rates, size)
            elif self._others and self._patient():
                self._look_again()
                return False
            else:
                raise
        self._waits_since = None if admitted else self._waits_since
        return admitted

    def _patient(self) -> bool:
        """Whether it is too early to do without what others hold."""
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        return now - self._waits_since < self.patience_s

    def _grow(self, need: Estimate, held: tuple[Rates, Size] | None = None) -> bool:
        """Ask for a grant that lets a call of this need go, `held` beside all that are held;
        return whether it was given. What is not used is given back where it was not."""
        if self.ledger is None or self._claim is None:
            return False
        if held is not None:
            held[0].hold(held[1], 1)
        all_held = [need, *(one.held() for one in self._rates.values())]
        if held is not None:
            held[0].hold(held[1], -1)
        usd = self.all.usd + self._sent["usd"] + sum(one.usd or 0.0 for one in all_held)
        tokens = self.all.tokens + self._sent["tokens"] + sum(one.tokens for one in all_held)
        short = Estimate(
            0.0 if self.tokens is None else max(0.0, tokens - self.tokens),
            0.0 if self.usd is None else max(0.0, usd - self.usd),
        )
        given, self._others = self.ledger.more(self._claim.name, short)
        if given == NOTHING:
            if not self._flying:
                self._give_back()
            return False
        self._grant(given)
        return True

    def _grant(self, given: Estimate) -> None:
        if self.usd is not None:
            self.usd += given.usd or 0.0
        if self.tokens is not None:
            self.tokens = math.floor(self.tokens + given.tokens)

    def _give_back(self) -> None:
        """Keep what is spent alone."""
        assert self.ledger is not None
        assert self._claim is not None
        self.ledger.reduce(self._claim.name, self._spent(self._claim))
        self.usd = None if self.usd is None else self.all.usd
        self.tokens = None if self.tokens is None else self.all.tokens

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        with self._lock:
            self._wake()
