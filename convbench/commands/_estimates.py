"""The forecast of work on shards in a dry run, and how it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from convbench.commands._command import Answer
from convbench.commands._output import out, print_fact
from convbench.util.printable import make_printable

if TYPE_CHECKING:
    from convbench.shards.forecast import ShardForecast


class ForeseenAnswer(Answer):
    """Forecast of work on shards in a dry run."""

    workers: int
    """Shards at once."""
    shards: int
    """Number of shards."""
    hours: float
    """Hours until all is done."""
    hours_with_losses: float
    """Hours if each process is lost once a day."""
    folder_bytes: float
    """Bytes of the run's folder, about."""
    calls_a_minute: float
    """Calls a minute that the provider must accept."""
    tokens_a_minute: float
    """Tokens a minute that the provider must accept."""
    rates_of: str
    """Source of the rate of a process: measured in a run, or assumed."""
    written: str | None
    """The script, manifest or command that starts them."""


def forecast_answer(forecast: ShardForecast | None) -> ForeseenAnswer | None:
    """Return the answer for a forecast, None for None."""
    if forecast is None:
        return None
    return ForeseenAnswer(
        workers=forecast.at_once,
        shards=forecast.shards,
        hours=forecast.hours,
        hours_with_losses=forecast.hours_with_losses,
        folder_bytes=forecast.bytes,
        calls_a_minute=forecast.calls_min,
        tokens_a_minute=forecast.tokens_min,
        rates_of=forecast.rates.source,
        written=forecast.script,
    )


def print_forecast(forecast: ShardForecast) -> None:
    """Print a forecast of work on shards, and the script that would start it."""
    from convbench.engine.progress import short_number

    days = f" ({forecast.hours / 24:,.1f} days)" if forecast.hours > 48 else ""
    where = forecast.on or "this process"
    print_fact("shards", f"{forecast.shards:,}, {forecast.at_once:,} at once on {where}")
    hours, with_losses = _format_hours(forecast.hours), _format_hours(forecast.hours_with_losses)
    print_fact("time", f"about {hours}{days}; {with_losses} where each process is lost once a day")
    print_fact("folder", f"about {_format_size(forecast.bytes)}")
    usd = forecast.usd
    print_fact("cost", "price unknown" if usd is None else f"at most about ${usd:,.2f}")
    tokens = short_number(round(forecast.tokens_min))
    print_fact(
        "provider",
        f"must bear {forecast.calls_min:,.0f} calls and {tokens} tokens a minute; where its limits "
        "are lower, they set the time",
    )
    rates = forecast.rates
    print_fact("rates", f"{rates.calls_s:,.1f} calls a second per process ({rates.source})")
    if forecast.script:
        out.print()
        out.print(Text(make_printable(forecast.script).rstrip()), soft_wrap=True)


def _format_hours(value: float) -> str:
    """Return `1:02:03` for less than two days, else hours."""
    from convbench.engine.progress import clock_text

    return clock_text(value * 3600) if value < 48 else f"{value:,.0f} hours"


def _format_size(value: float) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
