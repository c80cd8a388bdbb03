"""Dollars of a call by the price list."""

from __future__ import annotations

from typing import Any

import pytest

from convbench.models.prices import Price, list_price
from convbench.models.replies import read_reply


def test_prices_of_reads_and_writes() -> None:
    found = list_price("anthropic/claude-opus-5-5")
    assert found is not None
    assert found.write == 5e-6
    mine = Price(2.0, 3.0, 0.5, 4.0)
    assert mine.cost_of(10, 1, cached=4, written=3) == 3 * 2.0 + 4 * 0.5 + 3 * 4.0 + 3.0
    assert mine.cost_of(10, 1, cached=40, written=3) == 10 * 0.5 + 3.0, "no more than there are"
    usages: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, (7, 0)),
        ({"prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}, (8, 0)),
        ({"cache_read_input_tokens": 5, "cache_creation_input_tokens": 6}, (5, 6)),
        ({"prompt_tokens_details": [1], "cache_read_input_tokens": "many"}, (0, 0)),
        ({"cache_read_input_tokens": -4, "cache_creation_input_tokens": 1e30}, (0, 0)),
    ]
    for usage, (read, written) in usages:
        counted = {"prompt_tokens": 100, "completion_tokens": 1, **usage}
        body = {"choices": [{"message": {"content": "A."}}], "usage": counted}
        assert read_reply("m", body, price=mine).cost_usd == mine.cost_of(100, 1, read, written)


def test_a_long_prompt_has_its_own_price() -> None:
    """Beyond 200,000 tokens Gemini's price is twice as high."""
    price = list_price("gemini/gemini-2.5-pro")
    assert price is not None
    assert price.cost_of(300_000, 0) == pytest.approx(2 * 300_000 * price.input)
