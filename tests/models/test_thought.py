"""What a reply tells of its reasoning, and what it pretends to tell."""

from __future__ import annotations

from typing import Any

import pytest

from convbench.models.replies import reasoning_of, reasoning_tokens, split_reasoning


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
    assert reasoning_tokens(usage) == tokens


def test_text_that_utf8_cannot_hold_is_mended() -> None:
    found = reasoning_of({"reasoning_content": "half \ud800 a pair"}, None)
    assert found is not None
    assert found.text == "half \ufffd a pair"
    sealed = {"type": "thinking", "thinking": "\ud800", "signature": "s", "more": 1}
    blocks = reasoning_of({"thinking_blocks": [sealed]}, None)
    assert blocks is not None
    assert blocks.model_dump_json().encode()
    assert reasoning_of({"reasoning": "b", "reasoning_content": " "}, None).via == "reasoning"  # type: ignore[union-attr]
    assert reasoning_of({}, {"completion_tokens_details": {"reasoning_tokens": 9}}).tokens == 9  # type: ignore[union-attr]
    assert reasoning_of({}, {}) is None
