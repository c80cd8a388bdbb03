"""What a reply tells of its reasoning, and what it pretends to tell."""

from __future__ import annotations

from typing import Any

import pytest

from convbench.models.replies import read_reply, split_reasoning
from convbench.schema import Reasoning


@pytest.mark.parametrize(
    ("text", "words", "rest"),
    [
        ("<think>\nwhy\n</think>\n\nsaid", "why", "said"),
        ("  <thinking>why</thinking>said", "why", "said"),
        ("why\n</think>\nsaid", "why", "said"),  # opened by the template, in the prompt
        ("[THINK]why[/THINK] said", "why", "said"),
        ("<think>why, and never", "why, and never", ""),
        ("<think></think>said", "", "said"),
        ("said <think>too late</think>", None, "said <think>too late</think>"),
        ("said </thinking> a slip", None, "said </thinking> a slip"),
        ("said", None, "said"),
        ("", None, ""),
    ],
)
def test_a_block_at_the_start_is_cut_out_and_nothing_is_lost(
    text: str, words: str | None, rest: str
) -> None:
    found, said = split_reasoning(text)
    assert said == rest
    assert (found.text if found else None) == words
    assert (found.raw if found else "") + said == text


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"completion_tokens_details": {"reasoning_tokens": 12}}, 12),
        ({"output_tokens_details": {"reasoning_tokens": 3.0}}, 3),
        ({"completion_tokens_details": {"reasoning_tokens": 10**18}}, None),
        ({"completion_tokens_details": {"reasoning_tokens": -1}}, None),
        ({"completion_tokens_details": {"reasoning_tokens": "many"}}, None),
        ({"completion_tokens_details": [7]}, None),
        ("usage", None),
        (None, None),
    ],
)
def test_tokens_of_reasoning_are_a_count_or_unknown(usage: Any, tokens: int | None) -> None:
    found = read_message(usage=usage)
    assert (found and found.tokens) == tokens


def read_message(usage: Any = None, **message: Any) -> Reasoning | None:
    """Return the reasoning in a reply."""
    said = {"content": "A.", **message}
    return read_reply("m", {"choices": [{"message": said}], "usage": usage}).reasoning


def test_reasoning_comes_from_blocks_then_from_the_fields() -> None:
    sealed = {"type": "thinking", "thinking": "why", "signature": "s", "more": 1}
    found = read_message(thinking_blocks=[sealed], reasoning="b")
    assert found is not None
    assert (found.text, found.via, len(found.blocks)) == ("why", "blocks", 1)
    found = read_message(thinking_blocks=[sealed, 7], reasoning="b", reasoning_content=" ")
    assert found is not None
    assert (found.text, found.via, found.blocks) == ("b", "reasoning", ())
    assert read_message() is None
