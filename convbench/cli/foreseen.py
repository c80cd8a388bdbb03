"""What `build` and `judge` print, on a dry run, of work on shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from convbench.cli.answers.runs import ForeseenAnswer
from convbench.cli.console import out
from convbench.cli.say import fact
from convbench.engine.progress import clock, short
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.shards.forecast import ShardForecast


def answer_foreseen(forecast: ShardForecast | None) -> ForeseenAnswer | None:
    """Return what work on shards would take."""
    if forecast is None:
        return None
    return ForeseenAnswer(
        workers=forecast.at_once, shards=forecast.shards, hours=forecast.hours,
        hours_with_losses=forecast.hours_with_losses, folder_bytes=forecast.bytes,
        calls_a_minute=forecast.calls_min, tokens_a_minute=forecast.tokens_min,
        rates_of=forecast.rates.source, written=forecast.script,
    )  # fmt: skip


def say_foreseen(forecast: ShardForecast) -> None:
    """Print what work on shards would take, and what would be started."""
    days = f" ({forecast.hours / 24:,.1f} days)" if forecast.hours > 48 else ""
    where = forecast.on or "this process"
    fact("shards", f"{forecast.shards:,}, {forecast.at_once:,} at once on {where}")
    fact("time", f"about {hours(forecast.hours)}{days}; {hours(forecast.hours_with_losses)} where "
         "each process is lost once a day")  # fmt: skip
    fact("folder", f"about {size(forecast.bytes)}")
    usd = forecast.usd
    fact("cost", "price unknown" if usd is None else f"at most about ${usd:,.2f}")
    tokens = short(round(forecast.tokens_min))
    fact("provider", f"must bear {forecast.calls_min:,.0f} calls and {tokens} tokens a minute; "
         "where its limits are lower, they set the time")  # fmt: skip
    rates = forecast.rates
    fact("rates", f"{rates.calls_s:,.1f} calls a second and process ({rates.source})")
    if forecast.script:
        out.print()
        out.print(Text(printable(forecast.script).rstrip()), soft_wrap=True)


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
