"""What `build` and `judge` tell, on a dry run, of work by workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from convbench.cli.answers.runs import ForeseenAnswer
from convbench.cli.console import out
from convbench.cli.say import fact
from convbench.engine.progress import clock, short
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.workers.forecast import Foreseen


def answer_foreseen(found: Foreseen | None) -> ForeseenAnswer | None:
    """Return what work by workers would take."""
    if found is None:
        return None
    one = found.forecast
    return ForeseenAnswer(
        workers=one.workers, shards=one.shards, hours=one.hours,
        hours_with_losses=one.hours_with_losses, folder_bytes=one.bytes,
        calls_a_minute=one.calls_min, tokens_a_minute=one.tokens_min, rates_of=one.rates.of,
        written=found.written,
    )  # fmt: skip


def say_foreseen(found: Foreseen) -> None:
    """Print what work by workers would take, and what would be started."""
    one = found.forecast
    days = f" ({one.hours / 24:,.1f} days)" if one.hours > 48 else ""
    fact("workers", f"{one.workers:,} on {found.on or 'this process'}, {one.shards:,} shards")
    fact("time", f"about {hours(one.hours)}{days}; {hours(one.hours_with_losses)} where each "
         "worker is lost once a day")  # fmt: skip
    fact("folder", f"about {size(one.bytes)}")
    fact("cost", "price unknown" if one.usd is None else f"at most about ${one.usd:,.2f}")
    fact("provider", f"must bear {one.calls_min:,.0f} calls and {short(round(one.tokens_min))} "
         "tokens a minute; where its limits are lower, they set the time")  # fmt: skip
    fact("rates", f"{one.rates.calls_s:,.1f} calls a second and worker ({one.rates.of})")
    if found.written:
        out.print()
        out.print(Text(printable(found.written).rstrip()), soft_wrap=True)


def hours(value: float) -> str:
    """Return `1:02:03` for less than two days, else hours."""
    return clock(value * 3600) if value < 48 else f"{value:,.0f} hours"


def size(value: float) -> str:
    """Return bytes in the unit that suits."""
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
