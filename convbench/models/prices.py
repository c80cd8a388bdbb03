"""Prices from litellm's own price list, read from its file without importing litellm."""

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
"""Providers that are spoken to with plain HTTP, not through litellm."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars a token."""

    input: float
    """A prompt token."""
    output: float
    """A reply token."""
    cached: float | None = None
    """A prompt token that the provider had cached; None: as any other."""
    write: float | None = None
    """A prompt token that it caches now; None: as any other."""
    least: int = 1024
    """Tokens of the shortest beginning that it caches."""

    @property
    def caches(self) -> int | None:
        """Tokens from which on a repeated beginning costs less; None where none does."""
        return self.least if self.cached is not None and self.cached < self.input else None

    def of(self, prompt: int, reply: int, cached: int = 0, written: int = 0) -> float:
        """Return the dollars of a call; tokens read from a cache or written to one are part of the
        prompt's, and never more than those."""
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        cheap = self.input if self.cached is None else self.cached
        dear = self.input if self.write is None else self.write
        plain = prompt - cached - written
        return plain * self.input + cached * cheap + written * dear + reply * self.output


def cache_counts(usage: object) -> tuple[int, int]:
    """Return (tokens read from a cache, tokens written to one) that a usage tells, in whatever
    object: OpenAI's names, DeepSeek's, Anthropic's."""
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
    """Return litellm's price list as it lies there; an empty one where litellm is not installed."""
    spec = importlib.util.find_spec("litellm")
    path = Path(spec.origin).parent / LIST if spec is not None and spec.origin is not None else None
    return path.read_bytes() if path is not None and path.is_file() else b"{}"


@lru_cache(maxsize=1)
def price_list() -> dict[str, dict[str, Any]]:
    """Return litellm's price list; empty where litellm is not installed."""
    found: dict[str, dict[str, Any]] = orjson.loads(_text())
    return found


@lru_cache
def entry(ref: str) -> dict[str, Any]:
    """Return the list's entry of `provider/name`; empty where it has none.

    Megabytes are parsed only where they have the name: a model of one's own is not in them.
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
    """Return the price of `provider/name`; None where it is unknown."""
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
    """Return the price of a call within a batch: the list's own figures, else half."""
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
    """Return what the list says of `supports_NAME`, of a dated release what it says of the model;
    None where it does not say."""
    for known in (ref, _DATE.sub("", ref)):
        said = entry(known).get(f"supports_{name}")
        if isinstance(said, bool):
            return said
    return None


def retired(ref: str) -> str | None:
    """Return the date after which the list expects this model gone, as it writes it."""
    date = entry(ref).get("deprecation_date")
    return str(date) if date else None


def provider(name: str) -> str | None:
    """Return the provider of a bare chat model name; None where the list has none."""
    found = price_list().get(name, {})
    kind = found.get("litellm_provider") if found.get("mode") == "chat" else None
    return str(kind) if kind else None


@lru_cache(maxsize=1)
def _providers() -> frozenset[str]:
    listed = {str(value.get("litellm_provider")) for value in price_list().values()}
    return frozenset(listed) | frozenset(key.split("/", 1)[0] for key in price_list() if "/" in key)


def is_provider(name: str) -> bool:
    """Return whether litellm knows a provider of this name."""
    return name in OPENAI_LIKE or name in _providers()
