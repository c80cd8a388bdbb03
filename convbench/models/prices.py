"""Prices from litellm's price list, read from its file without importing litellm."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

LIST = "model_prices_and_context_window_backup.json"
OPENAI_LIKE = {
    *("openai", "hosted_vllm", "lm_studio", "llamafile"),
    *("openai_like", "custom_openai", "aiohttp_openai"),
}
"""Providers that are called by our own client, not through litellm."""
_COSTS = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price in dollars per token: of a prompt, of a reply, of what the provider reads
    from its cache and writes to it (None: as of any other prompt), and (tokens, price) of calls
    with a prompt longer than that."""

    input: float
    output: float
    cached: float | None = None
    write: float | None = None
    beyond: tuple[int, Price] | None = None

    def over(self, divisor: float) -> Price:
        """Return the price with all its dollars divided."""
        cached, write = (p if p is None else p / divisor for p in (self.cached, self.write))
        beyond = self.beyond and (self.beyond[0], self.beyond[1].over(divisor))
        return Price(self.input / divisor, self.output / divisor, cached, write, beyond)

    def cost_of(self, prompt: int, reply: int, cached: int = 0, written: int = 0) -> float:
        """Return the dollars of a call of `prompt` and `reply` tokens. `cached` and `written` are
        the prompt tokens among them that were read from and written to the provider's cache."""
        if self.beyond is not None and prompt > self.beyond[0]:
            return self.beyond[1].cost_of(prompt, reply, cached, written)
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        cheap = self.input if self.cached is None else self.cached
        dear = self.input if self.write is None else self.write
        plain = (prompt - cached - written) * self.input
        return plain + cached * cheap + written * dear + reply * self.output


@cache
def price_list() -> dict[str, dict[str, Any]]:
    """Return litellm's price list as {model: its fields}."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    return dict(orjson.loads((Path(str(spec.origin)).parent / LIST).read_bytes()))


def list_entry(ref: str) -> dict[str, Any]:
    """Return the price list's fields for `provider/name`, also under its bare name; {} if it has
    no such model."""
    provider, _, name = ref.partition("/")
    row = price_list().get(name, {})
    return price_list().get(ref) or (row if row.get("litellm_provider") == provider else {})


def list_price(ref: str) -> Price | None:
    """Return the list price of `provider/name`; None unless the list gives input and output."""
    row, beyond = list_entry(ref), None
    plain: list[Any] = [row.get(name) for name in _COSTS]
    if plain[0] is None or plain[1] is None:
        return None
    for thousands in (128, 200, 272):
        above: list[Any] = [row.get(f"{name}_above_{thousands}k_tokens") for name in _COSTS]
        if above[0]:
            beyond = (thousands * 1000, Price(*(a or p for a, p in zip(above, plain, strict=True))))
    return Price(plain[0], plain[1], plain[2], plain[3] or None, beyond)


@cache
def is_provider(name: str) -> bool:
    """Return True for a provider in the price list, or one that our own client calls."""
    return name in OPENAI_LIKE or any(
        key.startswith(f"{name}/") or row.get("litellm_provider") == name
        for key, row in price_list().items()
    )
