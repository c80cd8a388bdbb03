"""What a command spent, in one line, from its one ledger."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.engine.budget import Budget, Sum


def spending(ledger: Budget) -> str:
    """Return what was spent, lost attempts and what nobody told included; empty where no call
    could cost anything and nothing is limited."""
    billed = ledger.all.usd or ledger.unpriced or ledger.limited
    return " · ".join(_parts(ledger)) if ledger.all.attempts and billed else ""


def _parts(ledger: Budget) -> Iterator[str]:
    limit = "" if ledger.usd is None else f" of ${ledger.usd:g}"
    known = "" if ledger.unpriced and not ledger.all.usd else f"${ledger.all.usd:.4f}{limit}"
    yield " + ".join(part for part in (known, "cost unknown" * ledger.unpriced) if part)
    most = "" if ledger.tokens is None else f" of {ledger.tokens:,}"
    yield f"{ledger.all.tokens:,}{most} tokens"
    if ledger.before.tokens or ledger.before.usd:
        yield f"before this command {_amount(ledger.before)}"
    if ledger.lost.attempts:
        yield f"{_attempts(ledger.lost)} without a reply of use {_amount(ledger.lost)}"
    if ledger.assumed.attempts:
        yield (
            f"{_attempts(ledger.assumed)} of no or impossible usage, counted at the most they may "
            f"have cost: {_amount(ledger.assumed)}"
        )


def _attempts(found: Sum) -> str:
    return f"{found.attempts} attempt{'' if found.attempts == 1 else 's'}"


def _amount(found: Sum) -> str:
    return f"${found.usd:.4f}" if found.usd else f"{found.tokens:,} tokens"
