"""A policy that shops by tools: prices looked up at once, a sum, an answer (task `market`)."""

from __future__ import annotations

import json
import re
from typing import Any

CALLS = "CALLS"
"""Begins a reply that calls tools: see `tools`."""
NEEDS = re.compile(r"(\d+) baskets of (\w+) and (\d+) baskets of (\w+)")


def shopper(call: Any) -> str:
    """A policy that looks both prices up at once, calculates, and answers."""
    many, first, more, second = NEEDS.findall(call.question)[0]
    said = results(call.body)
    prices = [int(price) for text in said for price in re.findall(r": (\d+) pence", text)]
    if len(prices) < 2:
        calls = [{"name": "lookup", "arguments": {"item": item}} for item in (first, second)]
        return f"{CALLS}{json.dumps(calls)} I look the prices up."
    paid = re.findall(r"pays with (\d+) pence", call.question)
    sum_ = f"{many} * {prices[0]} + {more} * {prices[1]}"
    numbers = [text for text in said if re.fullmatch(r"-?\d+", text)]
    if not numbers:
        expression = f"{paid[0]} - ({sum_})" if paid else sum_
        return (
            f"{CALLS}{json.dumps([{'name': 'calculate', 'arguments': {'expression': expression}}])}"
        )
    letter = re.findall(rf"([A-D])\. {numbers[-1]}\b", call.question)[0]
    return f"The answer is {letter}. It comes to {numbers[-1]}."


def results(body: Any) -> list[str]:
    """The results in a request, on either wire."""
    out = []
    for message in body["messages"]:
        if message["role"] == "tool":
            out.append(message["content"])
        elif isinstance(message.get("content"), list):
            blocks = [b for b in message["content"] if b.get("type") == "tool_result"]
            out += [_text(block["content"]) for block in blocks]
    return out


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
