"""Masks with tools: loss on what the policy called and said, none on results; calls as written."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.rows import Chats, mask_stretches, prompted_replies
from convbench.learn.tokens import ChatTokens
from convbench.models.replies import parse_tool_calls
from convbench.schema import Conversation, ToolCall, ToolResult, ToolRound
from tests.helpers import tiny
from tests.helpers.tiny import PROTOCOL
from tests.helpers.tokenizers import SHIPPED, TOOL, tokenizer

PLAIN = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TAKES = [name for name, text in SHIPPED.items() if "tool_calls" in text]


def talk() -> Conversation:
    """A turn that calls two tools at once, then says something."""
    found = tiny.conversation("Q", 0, ["POLICY0", "POLICY1"])
    calls = tuple(
        ToolCall(id=f"abcdefgh{i}", name="lookup", arguments=json.dumps({"item": f"CALLED{i}"}))
        for i in range(2)
    )
    results = tuple(
        ToolResult(id=call.id, name="lookup", content=f"RESULT{i}") for i, call in enumerate(calls)
    )
    turns = list(found.turns)
    rounds = (ToolRound(calls=calls, results=results),)
    turns[1] = turns[1].model_copy(update={"rounds": rounds})
    return found.model_copy(update={"turns": tuple(turns), "systems": {}})


def chat_of(name: str) -> ChatTokens:
    return ChatTokens(tokenizer(name), options={"tools": [TOOL.wire]})


def shown(name: str, talk: Conversation) -> tuple[list[str], list[str]] | None:
    """(learnt, not learnt) stretches of a talk; None where the template shows no such calls."""
    chat = chat_of(name)
    try:
        rows = chat.token_rows(prompted_replies(PROTOCOL, talk), "2026-11-20")
    except TrainError:
        return None
    pieces = [
        (on, chat.tokenizer.decode(ids))
        for row in rows
        for on, ids in mask_stretches(row.ids, row.mask)
    ]
    return [text for on, text in pieces if on], [text for on, text in pieces if not on]


def test_calls_are_learnt_and_results_are_not() -> None:
    """Under every template that shows calls; the others are refused in words."""
    able = set()
    for name in TAKES:
        found = shown(name, talk())
        if found is None:
            continue
        able.add(name)
        learnt, other = found
        assert sum(text.count("CALLED0") for text in learnt) == 1, name
        assert sum(text.count("CALLED1") for text in learnt) == 1, name
        assert not any("RESULT" in text for text in learnt), name
        assert any("RESULT0" in text for text in other), name
        for word in ("POLICY0", "POLICY1"):
            assert sum(word in text for text in learnt) == 1, name
    assert {"qwen2_5", "qwen3"} <= able, able
    assert len(able) >= 10, able


def test_a_template_that_takes_one_call_at_once_refuses_two() -> None:
    with pytest.raises(TrainError, match="single tool-calls"):
        chat_of("llama3_1").token_rows(prompted_replies(PROTOCOL, talk()), "2026-11-20")
    one = talk()
    (both,) = one.turns[1].rounds
    single = both.model_copy(update={"calls": both.calls[:1], "results": both.results[:1]})
    turn = one.turns[1].model_copy(update={"rounds": (single,)})
    one = one.model_copy(update={"turns": (one.turns[0], turn, *one.turns[2:])})
    found = shown("llama3_1", one)
    assert found is not None
    assert sum(text.count("CALLED0") for text in found[0]) == 1
    assert not any("RESULT" in text for text in found[0])


def test_a_call_that_stood_in_the_text_is_learnt_word_for_word() -> None:
    said = "Hm.\n<tool_call>{ 'CALLED0' }</tool_call>"
    one = talk()
    turn = one.turns[1].model_copy(
        update={"rounds": (one.turns[1].rounds[0].model_copy(update={"raw": said}),)}
    )
    found = shown("qwen2_5", one.model_copy(update={"turns": (one.turns[0], turn, *one.turns[2:])}))
    assert found is not None
    assert any(text.startswith(said) for text in found[0])


def test_of_two_templates_that_for_tools_shows_calls_of_tools_that_no_log_describes(
    tmp_path: Path,
) -> None:
    words = tokenizer("qwen2_5")
    both = {"default": PLAIN, "tool_use": words.chat_template}
    copied = copy.deepcopy(words)
    copied.chat_template = both
    copied.save_pretrained(tmp_path / "model")
    run = tiny.judged_run(tmp_path / "run")
    chats = Chats(str(tmp_path / "model"), "loss")
    replies = prompted_replies(PROTOCOL, talk())
    with pytest.raises(TrainError, match="does not show"):
        chats.of(run).token_rows(replies, "2026-11-20")
    (row,) = chats.of(run, talk()).token_rows(replies, "2026-11-20")
    learnt = "".join(words.decode(ids) for on, ids in mask_stretches(row.ids, row.mask) if on)
    assert "CALLED0" in learnt
    assert "RESULT0" not in learnt


CALL: dict[str, Any] = {"name": "lookup", "arguments": {"item": "eggs"}}
LLAMA = json.dumps({"name": "lookup", "parameters": {"item": "eggs"}})


@pytest.mark.parametrize(
    ("text", "words", "many"),
    [
        (f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "", 1),
        (f"I look.\n<tool_call>{json.dumps(CALL)}</tool_call>" * 2, "I look.\nI look.", 2),
    ],
)
def test_calls_in_a_text(text: str, words: str, many: int) -> None:
    said, calls = parse_tool_calls(text, {"lookup"}, "k")
    assert said == words
    assert len({call.id for call in calls}) == many
    assert {json.loads(call.arguments)["item"] for call in calls} == {"eggs"}


@pytest.mark.parametrize(
    "text",
    [
        "The answer is A.", "<tool_call>{broken</tool_call>", "[TOOL_CALLS][{", "[1, 2]", "{}",
        json.dumps({"name": "other", "arguments": {}}), "[" * 100_000, '{"name": 3}',
        json.dumps({"name": "lookup", "arguments": "eggs"}), "", "[TOOL_CALLS]lookup[ARGS]no",
        f"I would call {LLAMA}", f"[TOOL_CALLS]{json.dumps([CALL])}",
        f"<tool_call>{json.dumps(CALL)}</tool_call>" * 65,
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text(text: str) -> None:
    assert parse_tool_calls(text, {"lookup"}, "k") == (text, ())
