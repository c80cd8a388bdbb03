"""Prices from litellm's price list, read from its file without importing litellm."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from convbench.util.untrusted import safe_count

LIST = "model_prices_and_context_window_backup.json"
OPENAI_LIKE = {
    "openai", "hosted_vllm", "lm_studio", "llamafile", "openai_like", "custom_openai",
    "aiohttp_openai",
}  # fmt: skip
"""Providers that are called by our own client, not through litellm."""
_DATE = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price in dollars per token."""

    input: float
    """Price of a prompt token."""
    output: float
    """Price of a reply token."""
    cached: float | None = None
    """Price of a prompt token read from the provider's cache; None: as any other."""
    write: float | None = None
    """Price of a prompt token written to the cache; None: as any other."""
    beyond: tuple[int, float, float] | None = None
    """(prompt tokens, input, output): prices of a call with a prompt longer than this."""

    def cost_of(self, prompt: int, reply: int, cached: int = 0, written: int = 0) -> float:
        """Return the dollars of a call of `prompt` and `reply` tokens.

        `cached` and `written` are the prompt tokens among them that were read from and written to
        the provider's cache; together they are capped at `prompt`.
        """
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        plain, output = self.input, self.output
        if self.beyond is not None and prompt > self.beyond[0]:
            plain, output = self.beyond[1:]
        scale = plain / self.input if self.input else 1.0
        cheap = plain if self.cached is None else self.cached * scale
        dear = plain if self.write is None else self.write * scale
        rest = prompt - cached - written
        return rest * plain + cached * cheap + written * dear + reply * output


def cache_counts(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Return (prompt tokens read from a cache, prompt tokens written to one) of a call's usage.

    The field names are those of OpenAI, DeepSeek or Anthropic. A missing count is 0.
    """
    details = usage.get("prompt_tokens_details")
    inner = details.get("cached_tokens") if isinstance(details, dict) else None
    names = ("cache_read_input_tokens", "prompt_cache_hit_tokens")
    read = max(safe_count(value) or 0 for value in (inner, *map(usage.get, names)))
    return read, safe_count(usage.get("cache_creation_input_tokens")) or 0


@lru_cache(maxsize=1)
def price_list() -> dict[str, dict[str, Any]]:
    """Return litellm's price list as {model: its fields}; empty if litellm is not installed."""
    spec = importlib.util.find_spec("litellm")
    path = Path(spec.origin).parent / LIST if spec is not None and spec.origin else None
    return dict(orjson.loads(path.read_bytes())) if path is not None and path.is_file() else {}


def list_entry(ref: str) -> dict[str, Any]:
    """Return the price list's fields for `provider/name`, which it has under that name, or under
    the bare name with that provider; an empty dict if it has no such model."""
    provider, _, name = ref.partition("/")
    row = price_list().get(name, {})
    own = row if row.get("litellm_provider") == provider else {}
    return price_list().get(ref, own)


def list_price(ref: str) -> Price | None:
    """Return the list price of `provider/name`; None unless the list gives input and output."""
    row = list_entry(ref)
    if "input_cost_per_token" not in row or "output_cost_per_token" not in row:
        return None
    plain, output = float(row["input_cost_per_token"]), float(row["output_cost_per_token"])
    beyond = None
    for thousands in (128, 200, 272):
        above = f"cost_per_token_above_{thousands}k_tokens"
        if dearer := row.get(f"input_{above}"):
            beyond = (thousands * 1000, dearer, row.get(f"output_{above}") or output)
    cached = row.get("cache_read_input_token_cost")
    return Price(plain, output, cached, row.get("cache_creation_input_token_cost") or None, beyond)


def batch_price(ref: str, listed: Price) -> Price:
    """Return the price of calls in batches: the list's own figures where it has them, else half.

    The list counts only if `listed` is its own price, not that of an alias.
    """
    row = list_entry(ref) if listed == list_price(ref) else {}
    plain = row.get("input_cost_per_token_batches", listed.input / 2)
    output = row.get("output_cost_per_token_batches", listed.output / 2)
    cached, write = (p if p is None else p / 2 for p in (listed.cached, listed.write))
    return Price(plain, output, cached, write)


def read_capability(ref: str, name: str) -> bool | None:
    """Return the price list's `supports_NAME` of `provider/name`; None if it does not say.

    A name that ends in a date (`-20250929`) falls back to the name without it.
    """
    for known in (ref, _DATE.sub("", ref)):
        supported = list_entry(known).get(f"supports_{name}")
        if isinstance(supported, bool):
            return supported
    return None


def provider_of(name: str) -> str | None:
    """Return litellm's provider of a bare name, e.g. `openai` for `gpt-4o`; None unless the price
    list has it as a chat model."""
    row = price_list().get(name, {})
    return row.get("litellm_provider") if row.get("mode") == "chat" else None


@lru_cache(maxsize=1)
def _listed_providers() -> set[str]:
    named = {str(row.get("litellm_provider")) for row in price_list().values()}
    return named.union(OPENAI_LIKE, (key.split("/", 1)[0] for key in price_list() if "/" in key))


def is_provider(name: str) -> bool:
    """Return True for a provider in the price list, or one that our own client calls."""
    return name in _listed_providers()
