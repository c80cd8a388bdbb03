"""Prices from litellm's price list, read from its file without importing litellm."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from convbench.net.tidy import count

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

    def of(self, prompt: int, reply: int, cached: int = 0, written: int = 0) -> float:
        """Return the dollars of a call. `cached` and `written` are the prompt tokens read from and
        written to the cache; they are capped at the prompt's tokens."""
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        cheap = self.input if self.cached is None else self.cached
        dear = self.input if self.write is None else self.write
        plain = prompt - cached - written
        return plain * self.input + cached * cheap + written * dear + reply * self.output


def cache_counts(usage: object) -> tuple[int, int]:
    """Return (tokens read from a cache, tokens written to one) of a usage, a mapping or an object,
    by the names of OpenAI, DeepSeek or Anthropic."""
    details = _field(usage, "prompt_tokens_details")
    told = (
        _field(details, "cached_tokens"),
        _field(usage, "cache_read_input_tokens"),
        _field(usage, "prompt_cache_hit_tokens"),
    )
    read = max(count(value) or 0 for value in told)
    return read, count(_field(usage, "cache_creation_input_tokens")) or 0


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _text() -> bytes:
    """Return the bytes of litellm's price list; an empty object if litellm is not installed."""
    spec = importlib.util.find_spec("litellm")
    path = Path(spec.origin).parent / LIST if spec is not None and spec.origin is not None else None
    return path.read_bytes() if path is not None and path.is_file() else b"{}"


@lru_cache(maxsize=1)
def price_list() -> dict[str, dict[str, Any]]:
    """Return litellm's price list by model; empty if litellm is not installed."""
    found: dict[str, dict[str, Any]] = orjson.loads(_text())
    return found


@lru_cache
def entry(ref: str) -> dict[str, Any]:
    """Return the price list's entry for `provider/name`; empty if there is none.

    The list is megabytes long and parsed only if the name occurs in it.
    """
    provider, _, name = ref.partition("/")
    if name.isascii() and f'{name}"'.encode() not in _text():
        return {}
    table = price_list()
    if ref in table:
        return table[ref]
    found = table.get(name, {})
    return found if found.get("litellm_provider") == provider else {}


def price(ref: str) -> Price | None:
    """Return the list price of `provider/name`; None if it is unknown."""
    found = entry(ref)
    if "input_cost_per_token" not in found or "output_cost_per_token" not in found:
        return None
    return Price(
        float(found["input_cost_per_token"]),
        float(found["output_cost_per_token"]),
        found.get("cache_read_input_token_cost"),
        found.get("cache_creation_input_token_cost") or None,
        int(found.get("prompt_cache_min_tokens") or 1024),
    )


def in_batches(ref: str, listed: Price) -> Price:
    """Return the price of calls in batches: the list's own figures, else half of `listed`."""
    found = entry(ref) if listed == price(ref) else {}
    half = None if listed.cached is None else listed.cached / 2
    dear = None if listed.write is None else listed.write / 2
    return Price(
        float(found.get("input_cost_per_token_batches", listed.input / 2)),
        float(found.get("output_cost_per_token_batches", listed.output / 2)),
        found.get("cache_read_input_token_cost_batches", half),
        found.get("cache_creation_input_token_cost_batches", dear),
        listed.least,
    )


def capability(ref: str, name: str) -> bool | None:
    """Return the list's `supports_NAME` of a model; a dated release falls back to the undated name.
    None if the list does not say."""
    for known in (ref, _DATE.sub("", ref)):
        said = entry(known).get(f"supports_{name}")
        if isinstance(said, bool):
            return said
    return None


def retired(ref: str) -> str | None:
    """Return the list's deprecation date of a model, as text; None without one."""
    date = entry(ref).get("deprecation_date")
    return str(date) if date else None


def provider(name: str) -> str | None:
    """Return the provider of a chat model given without one; None if it is not in the list."""
    found = price_list().get(name, {})
    kind = found.get("litellm_provider") if found.get("mode") == "chat" else None
    return str(kind) if kind else None


@lru_cache(maxsize=1)
def _providers() -> frozenset[str]:
    listed = {str(value.get("litellm_provider")) for value in price_list().values()}
    return frozenset(listed) | frozenset(key.split("/", 1)[0] for key in price_list() if "/" in key)


def is_provider(name: str) -> bool:
    """Return True if litellm knows a provider of this name."""
    return name in OPENAI_LIKE or name in _providers()
