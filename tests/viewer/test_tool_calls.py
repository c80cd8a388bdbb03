"""Calls of tools wherever a conversation is read: printed, searched, copied, as a prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from multidict import MultiDict

from convbench.schema import Reasoning, Turn
from convbench.schema.tools import ToolCall, ToolResult, ToolRound
from convbench.store import Run
from convbench.viewer.filters import list_page
from convbench.viewer.index import ViewIndex
from convbench.viewer.library import index_runs
from convbench.viewer.talk import chat_messages, talk_json, turn_prompts
from tests.helpers.imports import import_rows
from tests.helpers.made_logs import CHAT
from tests.helpers.typed import Typist
from tests.helpers.viewer_runs import RIGHT, make, question

ROUND = ToolRound(
    content="Let me look it up.",
    reasoning=Reasoning(text="The catalogue knows."),
    calls=(ToolCall(id="c1", name="lookup", arguments='{"metal": "Iron"}'),
           ToolCall(id="c2", name="price", arguments='{"of": "Cobalt"}'),
           ToolCall(id="c3", name="slow", arguments="{}")),
    results=(ToolResult(id="c1", name="lookup", content='{"Magnetic": true}'),
             ToolResult(id="c2", name="price", content="there is no \x1b[31mCobalt", error=True)),
)  # fmt: skip
ASKED = Turn(speaker="teacher", step="initial", content="Which?", finish_reason="scripted")
TURN = Turn(speaker="assistant", step="final-reply", content=RIGHT, rounds=(ROUND,))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with one conversation that called tools, and one that did not."""
    talks = [(0, 0, RIGHT, {"turns": (ASKED, TURN), "conversation_id": "called"}),
             (0, 1, RIGHT, {"conversation_id": "plain"})]  # fmt: skip
    return make(tmp_path / "run", [question(0)], talks, {"rules": lambda k: 8.0})


@pytest.fixture
def index(run: Run) -> ViewIndex:
    return index_runs([run.path], lambda text: None)


def test_show_prints_calls_and_what_came_of_them(run: Run, typist: Typist) -> None:
    said = typist("show", "called", "--run", str(run.path))
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    at = lines.index('calls lookup: {"metal": "Iron"}')
    assert lines[at - 2 : at] == ["The catalogue knows.", "Let me look it up."]
    assert lines[at + 1 : at + 6] == [
        'result: {"Magnetic": true}',
        'calls price: {"of": "Cobalt"}', "error: there is no \ufffd[31mCobalt",
        "calls slow: {}", "result: (none)",
    ]  # fmt: skip
    assert lines[at + 6] == RIGHT


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("lookup", ["called"]), ('"metal": "iron"', ["called"]), ("magnetic", ["called"]),
        ('"no \x1b[31mcobalt"', ["called"]), ('"look it up"', ["called"]), ("platinum", []),
        ("magnets", ["called", "plain"]),
    ],
)  # fmt: skip
def test_the_viewers_search_sees_them(index: ViewIndex, words: str, ids: list[str]) -> None:
    found = list_page(index, MultiDict(q=words))["rows"]
    assert sorted(row["conversation_id"] for row in found) == ids


def test_copied_messages_have_the_shape_of_the_chat_api(index: ViewIndex) -> None:
    found = chat_messages(index, "called")
    assert json.loads(json.dumps(found)) == found
    assert [message["role"] for message in found[-5:]] == [
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    calling, first, second = found[-4:-1]
    assert calling["content"] == "Let me look it up."
    assert calling["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"metal": "Iron"}'},
    }
    assert first == {"role": "tool", "tool_call_id": "c1", "name": "lookup",
                     "content": '{"Magnetic": true}'}  # fmt: skip
    assert second["tool_call_id"] == "c2"


def test_talk_json_of_an_imported_log_has_calls_and_results(tmp_path: Path) -> None:
    run = import_rows(tmp_path, [{"messages": CHAT}]).run
    assert run is not None
    (talk,) = run.conversations()
    turns = talk_json(index_runs([run.path], lambda text: None), talk.conversation_id)["turns"]
    (made,) = [call for turn in turns for one in turn.get("rounds", ()) for call in one["calls"]]
    assert (made["name"], made["arguments"], made["result"]) == (
        "weather", '{"city": "Ulm"}', "7",
    )  # fmt: skip


def test_a_copied_conversation_can_be_imported(
    index: ViewIndex, typist: Typist, tmp_path: Path
) -> None:
    row = {"messages": chat_messages(index, "called"), "reward": 0.5}
    whole_calls = [call for call in row["messages"][-4]["tool_calls"] if call["id"] != "c3"]
    row["messages"][-4]["tool_calls"] = whole_calls  # a call without a result
    Path("copied.jsonl").write_text(json.dumps(row) + "\n")
    said = typist("import", "copied.jsonl", "--run", "runs/again")
    assert said.code == 0, said.err
    (again,) = Run.open(Path("runs/again")).conversations()
    assert [call.name for turn in again.turns for call in turn.tool_calls] == ["lookup", "price"]


def test_a_later_prompt_holds_the_calls(run: Run, tmp_path: Path) -> None:
    later = Turn(speaker="assistant", step="final-reply", content=RIGHT)
    talks = [(0, 0, RIGHT, {"turns": (ASKED, TURN, ASKED, later), "conversation_id": "called"})]
    longer = make(tmp_path / "longer", [question(0)], talks, {})
    seen = turn_prompts(index_runs([longer.path], lambda text: None), "called")["3"]
    assert [one["calls"] for one in seen if one["calls"]] == [
        [["lookup", '{"metal": "Iron"}'], ["price", '{"of": "Cobalt"}'], ["slow", "{}"]]
    ]
    assert [one["name"] for one in seen if one["role"] == "tool"] == ["lookup", "price"]
