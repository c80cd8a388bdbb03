"""How providers bill a prompt's repeated beginning: OpenAI by itself, Anthropic where it is marked.

A token is four characters here. What is cached counts from the reply on, so that calls which are
sent at once find nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

LEAST, STEP, BACK = 1024, 128, 20
"""OpenAI: tokens of the shortest cached beginning, and the steps above it. Anthropic: the same
least, and how many blocks before a mark it looks back."""


@dataclass(frozen=True)
class Rates:
    """Dollars a token."""

    input: float = 1e-6
    output: float = 5e-6
    read: float = 0.1e-6
    write: float = 1.25e-6


@dataclass
class Ledger:
    """What calls cost with the cache, and would have cost without."""

    rates: Rates = Rates()
    usd: float = 0.0
    uncached_usd: float = 0.0
    read: int = 0
    written: int = 0
    seen: dict[str, set[str]] = field(default_factory=dict)
    """By model, beginnings that are cached (Anthropic) or whole prompts (OpenAI)."""

    def openai(self, model: str, text: str, reply: int) -> dict[str, Any]:
        """Book a call; return its usage."""
        before = self.seen.setdefault(model, set())
        tokens = len(text) // 4
        longest = max((_alike(text, other) for other in before), default=0) // 4
        read = longest // STEP * STEP if longest >= LEAST else 0
        before.add(text)
        self._book(tokens, reply, read, 0)
        return {
            "prompt_tokens": tokens,
            "completion_tokens": reply,
            "total_tokens": tokens + reply,
            "prompt_tokens_details": {"cached_tokens": read},
        }

    def anthropic(self, body: Mapping[str, Any], reply: int) -> dict[str, Any]:
        """Book a call; return its usage."""
        before = self.seen.setdefault(str(body.get("model")), set())
        blocks = list(_blocks(body))
        ends = [sum(len(text) for text, _ in blocks[: i + 1]) // 4 for i in range(len(blocks))]
        begins = ["\0".join(text for text, _ in blocks[: i + 1]) for i in range(len(blocks))]
        marks = [i for i, (_, marked) in enumerate(blocks) if marked and ends[i] >= LEAST]
        found = [
            i for mark in marks for i in range(max(0, mark - BACK), mark + 1) if begins[i] in before
        ]
        read = max((ends[i] for i in found), default=0)
        written = max(ends[marks[-1]] - read, 0) if marks else 0
        before.update(begins[mark] for mark in marks)
        tokens = ends[-1] if ends else 0
        self._book(tokens, reply, read, written)
        return {
            "input_tokens": tokens - read - written,
            "output_tokens": reply,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }

    def _book(self, tokens: int, reply: int, read: int, written: int) -> None:
        rates = self.rates
        self.read += read
        self.written += written
        self.uncached_usd += tokens * rates.input + reply * rates.output
        plain = (tokens - read - written) * rates.input
        self.usd += plain + read * rates.read + written * rates.write + reply * rates.output


def _alike(one: str, two: str) -> int:
    unlike = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return next(unlike, min(len(one), len(two)))


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield (text, marked) of every block, the system's first."""
    for content in (body.get("system") or "", *(m["content"] for m in body["messages"])):
        for block in [{"text": content}] if isinstance(content, str) else content:
            yield str(block.get("text") or block), "cache_control" in block
