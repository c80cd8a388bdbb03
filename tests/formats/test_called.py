"""Logged calls of tools: folded into the turn that they lead to, or refused in words."""

from __future__ import annotations

import json
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
    assert [role for role, _ in chat.dialogue.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert list(chat.dialogue.rounds) == [1]
    first, second = chat.dialogue.rounds[1]
    assert [one.id for one in first.calls] == ["a", "b"]
    assert {one.id: one.content for one in first.results}["a"] == "result of a"
    assert second.calls[0].arguments == '{"a": 1}'


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ([USER, result("a"), LAST], "expected its call before it"),
        ([USER, call("a"), result("a"), result("a"), LAST], "expected its call before it"),
        ([USER, call("a", "a"), result("a"), LAST], "an id twice"),
        ([USER, {**call("a"), "tool_calls": [3]}, LAST], "tool_calls: expected"),
        ([USER, call("a"), {**result("a"), "content": 3}, LAST], "expected text"),
    ],
)
def test_another_order_is_refused(said: list[Any], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read_chat({"messages": said}, "f:1", 1)


def shape(*said: dict[str, Any]) -> tuple[list[str], dict[int, list[tuple[int, int]]], set[int]]:
    """(roles, calls and results of each round by place, places without words) of messages."""
    found = read_chat({"messages": list(said)}, "f:1", 1).dialogue
    rounds = {
        at: [(len(one.calls), len(one.results)) for one in some]
        for at, some in found.rounds.items()
    }
    return [role for role, _ in found.messages], rounds, set(found.calls_alone)


def test_calls_need_no_results_and_no_words_after_them() -> None:
    one = ["user", "assistant"]
    assert shape(USER, call("a"), LAST) == (one, {1: [(1, 0)]}, set())
    assert shape(USER, call("a", "b"), result("b"), LAST) == (one, {1: [(2, 1)]}, set())
    assert shape(USER, call("a"), result("a")) == (one, {1: [(1, 1)]}, {1})
    assert shape(USER, call("a")) == (one, {1: [(1, 0)]}, {1})
    assert shape(USER, call("a"), result("a"), call("b")) == (one, {1: [(1, 1), (1, 0)]}, {1})
    two = ["user", "assistant", "user", "assistant"]
    assert shape(USER, call("a"), result("a"), USER, LAST) == (two, {1: [(1, 1)]}, {1})


def test_results_without_an_id_go_by_their_place_and_ids_may_come_again() -> None:
    bare = {"role": "tool", "content": "first"}, {"role": "tool", "content": "second"}
    said = [USER, call("a", "b"), *bare, call("a"), result("a"), LAST]
    (first, second) = read_chat({"messages": said}, "f:1", 1).dialogue.rounds[1]
    assert [(one.id, one.content) for one in first.results] == [("a", "first"), ("b", "second")]
    assert second.results[0].content == "result of a"


@pytest.mark.parametrize(
    "written",
    [
        json.dumps({"id": "a", "function": {"name": "lookup", "arguments": '{"a":1}'}}),
        {"id": "a", "function": {"name": "lookup", "arguments": {"a": 1}}},
        {"id": "a", "name": "lookup", "arguments": {"a": 1}},
        {"id": "a", "function": "lookup", "arguments": {"a": 1}},
        {"function": {"name": "lookup", "arguments": '{"a":1}'}},
    ],
)
def test_calls_as_other_programs_write_them(written: Any) -> None:
    said = [USER, {"role": "assistant", "tool_calls": [written]}, result("")]
    said[-1]["tool_call_id"] = None
    (one,) = read_chat({"messages": [*said, LAST]}, "f:1", 1).dialogue.rounds[1]
    assert (one.calls[0].name, one.calls[0].arguments) == ("lookup", '{"a":1}')
    assert len(one.results) == 1


def test_what_was_thought_before_a_call_is_kept() -> None:
    said = [USER, {**call("a"), "reasoning_content": "Look it up."}, result("a"), LAST]
    (one,) = read_chat({"messages": said}, "f:1", 1).dialogue.rounds[1]
    assert one.reasoning is not None
    assert one.reasoning.text == "Look it up."
