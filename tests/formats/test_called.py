"""Logged calls of tools: folded into the turn that they lead to, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from convbench.errors import DataError
from convbench.formats.chats import read_chat

USER = {"role": "user", "content": "What do eggs cost?"}
LAST = {"role": "assistant", "content": "73 pence."}


def call(*ids: str) -> dict[str, Any]:
    asked = [
        {"id": i, "type": "function", "function": {"name": "lookup", "arguments": '{"a": 1}'}}
        for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": asked}


def result(name: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": f"result of {name}"}


def test_calls_and_results_are_folded_into_their_turn() -> None:
    system = {"role": "system", "content": "Be brief."}
    said = [system, USER, call("a", "b"), result("b"), result("a"), call("c"), result("c"), LAST]
    chat = read_chat({"messages": [*said, USER, LAST]}, "f:1", 1)
    assert [role for role, _ in chat.messages] == ["user", "assistant", "user", "assistant"]
    assert list(chat.rounds) == [1]
    first, second = chat.rounds[1]
    assert [one.id for one in first.calls] == ["a", "b"]
    assert {one.id: one.content for one in first.results}["a"] == "result of a"
    assert second.calls[0].arguments == '{"a": 1}'


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ([USER, call("a"), LAST], "without their results"),
        ([USER, call("a", "b"), result("a"), LAST], "without their results"),
        ([USER, call("a"), result("a")], "at the end"),
        ([USER, result("a"), LAST], "expected its call before it"),
        ([USER, call("a"), result("a"), result("a"), LAST], "expected its call before it"),
        ([USER, call("a", "a"), result("a"), LAST], "an id twice"),
        ([USER, call("a"), result("a"), USER, LAST], "expected the assistant"),
        ([USER, {**call("a"), "tool_calls": [3]}, LAST], "tool_calls: expected"),
        ([USER, call("a"), {**result("a"), "content": 3}, LAST], "expected text"),
    ],
)
def test_another_order_is_refused(said: list[Any], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read_chat({"messages": said}, "f:1", 1)
