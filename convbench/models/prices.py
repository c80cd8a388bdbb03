"""Prices from litellm's price list, read from its file without importing litellm."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from convbench.net.untrusted_json import safe_count

LIST = "model_prices_and_context_window_backup.json"
_DATE = re.compile(r"-\d{8}$")
OPENAI_LIKE = (
    "openai",
    "hosted_vllm",
    "lm_studio",
    "llamafile",
    "openai_like",
    "custom_openai",
    "aiohttp_openai",
)
"""Providers that are called over plain HTTP, not through litellm."""


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
    least: int = 1024
    """Fewest tokens of a prefix that is cached."""

    @property
    def caches(self) -> int | None:
        """Fewest tokens of a repeated prompt prefix that cost less; None if none do."""
        return self.least if self.cached is not None and self.cached < self.input else None

    def cost_of(self, prompt: int, reply: int, cached: int = 0, written: int = 0) -> float:
        """Return the dollars of a call of `prompt` and `reply` tokens.

        `cached` and `written` are the prompt tokens among them that were read from and written to
        the provider's cache; together they are capped at `prompt`.
        """
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        cheap = self.input if self.cached is None else self.cached
        dear = self.input if self.write is None else self.write
        uncached = prompt - cached - written
        return uncached * self.input + cached * cheap + written * dear + reply * self.output


def cache_counts(usage: object) -> tuple[int, int]:
    """Return (prompt tokens read from a cache, prompt tokens written to one) of a call's usage.

    The usage is a dict or an object, with the field names of OpenAI, DeepSeek or Anthropic. A count
    that is missing or invalid is 0.
    """
    details = field_of(usage, "prompt_tokens_details")
    counts = (
        field_of(details, "cached_tokens"),
        field_of(usage, "cache_read_input_tokens"),
        field_of(usage, "prompt_cache_hit_tokens"),
    )
    read = max(safe_count(value) or 0 for value in counts)
    return read, safe_count(field_of(usage, "cache_creation_input_tokens")) or 0


def field_of(value: Any, name: str) -> Any:
    """Return a field of a dict or an attribute of another object; None if it is missing."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _list_bytes() -> bytes:
    """Return the bytes of litellm's price list; an empty object if litellm is not installed."""
    spec = importlib.util.find_spec("litellm")
    path = Path(spec.origin).parent / LIST if spec is not None and spec.origin is not None else None
    return path.read_bytes() if path is not None and path.is_file() else b"{}"


@lru_cache(maxsize=1)
def price_list() -> dict[str, dict[str, Any]]:
    """Return litellm's price list as {model: its fields}; empty if litellm is not installed.

    It is parsed once and shared; do not change it.
    """
    prices: dict[str, dict[str, Any]] = orjson.loads(_list_bytes())
    return prices


@lru_cache
def list_entry(ref: str) -> dict[str, Any]:
    """Return the price list's fields for `provider/name`; an empty dict if it has no such model.

    The entry has that name, or the bare name with that provider. The list is megabytes long and
    parsed only if the name occurs in it.
    """
    provider, _, name = ref.partition("/")
    if name.isascii() and f'{name}"'.encode() not in _list_bytes():
        return {}
    table = price_list()
    if ref in table:
        return table[ref]
    row = table.get(name, {})
    return row if row.get("litellm_provider") == provider else {}


def list_price(ref: str) -> Price | None:
    """Return the list price of `provider/name`; None unless the list gives input and output."""
    row = list_entry(ref)
    if "input_cost_per_token" not in row or "output_cost_per_token" not in row:
        return None
    return Price(
        float(row["input_cost_per_token"]),
        float(row["output_cost_per_token"]),
        row.get("cache_read_input_token_cost"),
        row.get("cache_creation_input_token_cost") or None,
        int(row.get("prompt_cache_min_tokens") or 1024),
    )


def batch_price(ref: str, listed: Price) -> Price:
    """Return the price of calls in batches: each figure from the price list, else half of that in
    `listed`.

    The list counts only if `listed` is its own price, not that of an alias.
    """
    row = list_entry(ref) if listed == list_price(ref) else {}
    half = None if listed.cached is None else listed.cached / 2
    dear = None if listed.write is None else listed.write / 2
    return Price(
        float(row.get("input_cost_per_token_batches", listed.input / 2)),
        float(row.get("output_cost_per_token_batches", listed.output / 2)),
        row.get("cache_read_input_token_cost_batches", half),
        row.get("cache_creation_input_token_cost_batches", dear),
        listed.least,
    )


def read_capability(ref: str, name: str) -> bool | None:
    """Return the price list's `supports_NAME` of `provider/name`; None if it does not say.

    A name that ends in a date (`-20250929`) falls back to the name without it.
    """
    for known in (ref, _DATE.sub("", ref)):
        supported = list_entry(known).get(f"supports_{name}")
        if isinstance(supported, bool):
            return supported
    return None


def retirement_date(ref: str) -> str | None:
    """Return the price list's deprecation date of `provider/name`, `YYYY-MM-DD`; None without
    one."""
    date = list_entry(ref).get("deprecation_date")
    return str(date) if date else None


def provider_of(name: str) -> str | None:
    """Return litellm's provider of a bare name, e.g. `openai` for `gpt-4o`.

    Return None if the price list does not have this name as a chat model.
    """
    row = price_list().get(name, {})
    kind = row.get("litellm_provider") if row.get("mode") == "chat" else None
    return str(kind) if kind else None


@lru_cache(maxsize=1)
def _known_providers() -> frozenset[str]:
    listed = {str(value.get("litellm_provider")) for value in price_list().values()}
    return frozenset(listed) | frozenset(key.split("/", 1)[0] for key in price_list() if "/" in key)


def is_provider(name: str) -> bool:
    """Return True if a name is a provider in the price list, or one called as an OpenAI-compatible
    server.

    Without litellm only the latter are known.
    """
    return name in OPENAI_LIKE or name in _known_providers()
