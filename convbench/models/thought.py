"""What a reply tells of its reasoning: a field, a provider's blocks, or tags in its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from convbench.answers.tags import first_block
from convbench.net.tidy import count, text
from convbench.schema import Reasoning, RedactedBlock, ThinkingBlock
from convbench.schema.reasoning import MOST_BLOCKS, Block, Via

FIELDS = ("reasoning_content", "reasoning", "thinking_blocks")
"""Fields of a reply's message."""
MOST_TOKENS = 10_000_000
"""Tokens that no model thinks."""
_BLOCK: TypeAdapter[ThinkingBlock | RedactedBlock] = TypeAdapter(Block)
_KEPT = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}


def thought(said: Mapping[str, Any], usage: object) -> Reasoning | None:
    """Return the reasoning in a reply's message and usage; None where there is none.

    What is no text and no block is left out: the reply is paid for, and stands without it.
    """
    blocks, tokens = _blocks(said.get("thinking_blocks")), reasoning_tokens(usage)
    found = "\n".join(b.thinking for b in blocks if isinstance(b, ThinkingBlock))
    via: Via = "blocks"
    if not blocks:
        via, found = _field(said)
    if not (found.strip() or blocks or tokens):
        return None
    return Reasoning(text=found, tokens=tokens, via=via, blocks=blocks)


def cut(content: str, tokens: int | None = None) -> tuple[Reasoning | None, str]:
    """Return (reasoning, reply) of a text that begins with a thinking block; `frame` holds the
    tags and blanks around it, so that both together are the text."""
    found = first_block(content)
    if found is None:
        return None, content
    start, stop, rest = found
    frame = content[:start], content[stop:rest]
    thinks = Reasoning(text=content[start:stop], tokens=tokens, via="tags", frame=frame)
    return thinks, content[rest:]


def reasoning_tokens(usage: object) -> int | None:
    """Return the tokens of reasoning that a usage tells, in whatever object; None where none."""
    details = _get(usage, "completion_tokens_details") or _get(usage, "output_tokens_details")
    found = count(_get(details, "reasoning_tokens"))
    return found if found and found <= MOST_TOKENS else None


def _field(said: Mapping[str, Any]) -> tuple[Via, str]:
    first, second = said.get("reasoning_content"), said.get("reasoning")
    if isinstance(first, str) and first.strip():
        return "reasoning_content", text(first)
    if isinstance(second, str) and second.strip():
        return "reasoning", text(second)
    return "reasoning_content", ""


def _blocks(value: object) -> tuple[ThinkingBlock | RedactedBlock, ...]:
    """Return the blocks, all or none: a part of them could not be sent back."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_BLOCKS:
        return ()
    try:
        return tuple(_BLOCK.validate_python(_plain(item)) for item in value)
    except (ValidationError, TypeError, KeyError):
        return ()


def _plain(block: Any) -> dict[str, Any]:
    """Return what is kept of a block, its texts as UTF-8 can hold them."""
    kind = block["type"]
    found = {name: block[name] for name in _KEPT[kind] if block.get(name) is not None}
    return {
        "type": kind,
        **{name: text(item) if isinstance(item, str) else item for name, item in found.items()},
    }


def _get(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
