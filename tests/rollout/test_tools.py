"""Tools from the wire to the record: asked over HTTP by both APIs, run, told, kept, resumed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import SpecError
from convbench.formats.export import export_conversations
from convbench.hub.tables import open_portions, write_tables
from convbench.judges.ask import judge_messages
from convbench.judges.resolve import resolve_judge
from convbench.models.tools import ToolsModel
from convbench.schema import Conversation, Sampling, Tool, ToolCall, ToolLimits
from convbench.store import Run
from convbench.store.tables import connect_runs
from convbench.tasks import market
from tests.helpers import stages
from tests.support.chat.dialects import Refusal
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call
from tests.support.chat.shopper import results, shopper
from tests.support.chat.tools import CALLS
from tests.support.later import later
from tests.support.provider import Provider

datasets = later("datasets")


def built(folder: Path, server: Provider, model: str, tasks: int = 12) -> list[Conversation]:
    base = server.url if model.startswith("anthropic/") else server.api_base
    shape = {"mode": "standard", "samples": 1, "temperatures": (0.7,)}
    where = folder / "run"
    stages.build_result("market", model=model, tasks=tasks, run=where, **shape, api_base=base)
    return list(Run.open(folder / "run").conversations())


@pytest.mark.parametrize("model", ["openai/shopper", "anthropic/claude-haiku-4-5"])
def test_a_dozen_dialogues_call_tools_and_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with Provider(Plan(keep_requests=36), reply=shopper) as server:
        talks = built(tmp_path, server, model)
        assert server.stats.summary()["calls"] == 36
        assert not any("mcp" in name for body in server.requests for name in body)
    run = Run.open(tmp_path / "run")
    assert [talk.failure for talk in talks] == [None] * 12
    for talk in talks:
        turn = talk.turns[-1]
        gold = run.examples[talk.example_id].answer
        assert str(turn.content).startswith(f"The answer is {gold}.")
        assert [len(one.calls) for one in turn.rounds] == [2, 1]
        assert not any(result.error for one in turn.rounds for result in one.results)
        assert turn.completion_tokens is not None
        assert turn.completion_tokens > sum(one.completion_tokens or 0 for one in turn.rounds)
    first = talks[0].turns[-1].rounds[0]
    assert first.content == "I look the prices up."
    assert [result.id for result in first.results] == [call.id for call in first.calls]
    assert all("pence" in result.content for result in first.results)
    assert "prices" not in json.dumps([t.model_dump() for t in talks[0].turns if not t.rounds])


def test_a_run_that_ends_amid_tools_repays_and_reruns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    real = market.lookup

    def counted(arguments: Any, fields: Any) -> str:
        ran.append(arguments["item"])
        return real(arguments, fields)

    monkeypatch.setattr(market, "lookup", counted)
    refused = {"on": True}

    def dies(call: Call) -> str:
        said = shopper(call)
        if refused["on"] and said.startswith("The answer"):
            raise Refusal(401, "invalid_request_error", "the key is gone")
        return said

    with Provider(Plan(), reply=dies) as server:
        assert built(tmp_path, server, "openai/s", 3) == []
        asked, lookups = server.stats.summary()["calls"], len(ran)
        finished = 0
        for line in (tmp_path / "run" / "calls.jsonl").read_text().splitlines():
            finished += not json.loads(line)["key"].endswith("!")
        assert lookups >= 2
        refused["on"] = False
        talks = built(tmp_path, server, "openai/s", 3)
        assert server.stats.summary()["calls"] - asked == 9 - finished
    assert [talk.failure for talk in talks] == [None] * 3
    assert len(ran) == 6, "no tool of a finished round runs again"


def test_what_a_tool_may_not_do_is_told_to_the_model(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"name": "lookup", "arguments": {"item": "gold"}},
        {"name": "lookup", "arguments": "no json"},
        {"name": "lookup", "arguments": {"item": 3}},
        {"name": "lookup", "arguments": {"item": "eggs", "more": 1}},
        {"name": "calculate", "arguments": {"expression": "9**9**9"}},
        {"name": "calculate", "arguments": {"expression": "__import__('os').getcwd()"}},
        {"name": "calculate", "arguments": {"expression": "1/0"}},
        {"name": "calculate", "arguments": {"expression": "1+1"}},
        {"name": "calculate", "arguments": {"expression": "2+2"}},
    ]

    def says(call: Call) -> str:
        return "The answer is A." if results(call.body) else CALLS + json.dumps(bad)

    with Provider(Plan(), reply=says) as server:
        (talk,) = built(tmp_path, server, "openai/s", 1)
    (one,) = talk.turns[-1].rounds
    told = [result.content for result in one.results]
    assert [result.error for result in one.results] == [True] * 7 + [False, True]
    assert "is not in the list" in told[0]
    assert "expected a JSON object" in told[1]
    assert "is not of type 'string'" in told[2]
    assert "'more' was unexpected" in told[3]
    assert "digits" in told[4] or "whole power" in told[4]
    assert "expected numbers" in told[5]
    assert "ZeroDivisionError" in told[6]
    assert told[7] == "2"
    assert "more than 8 calls" in told[8]


def test_a_policy_that_never_stops_calling_is_stopped(tmp_path: Path) -> None:
    def says(call: Call) -> str:
        if call.body.get("tool_choice") == "none":
            return "The answer is A."
        return CALLS + json.dumps([{"name": "calculate", "arguments": {"expression": "1+1"}}])

    with Provider(Plan(keep_requests=9), reply=says) as server:
        (talk,) = built(tmp_path, server, "openai/s", 1)
        assert [body.get("tool_choice") for body in server.requests] == [None] * 6 + ["none"]
    assert len(talk.turns[-1].rounds) == 6
    assert talk.turns[-1].content == "The answer is A."


def test_tools_of_a_pulled_spec_are_no_code() -> None:
    spec = Tool(
        name="t", about="", parameters={"type": "object", "properties": {}}, function="os:system"
    )
    with pytest.raises(SpecError, match="downloaded spec"):
        ToolsModel([spec], ToolLimits(), downloaded=True)


@pytest.mark.parametrize("key", ["$ref", "pattern"])
def test_a_schema_names_no_other_place(key: str) -> None:
    shape = {"type": "object", "properties": {"a": {"anyOf": [{key: "http://127.0.0.1/x"}]}}}
    with pytest.raises(ValueError, match="write the schema without it"):
        Tool(name="t", about="", parameters=shape, function="x:y")


async def slow(arguments: Any, fields: Any) -> str:
    await asyncio.Event().wait()
    return ""


def long(arguments: Any, fields: Any) -> list[int]:
    return list(range(1000))


def test_a_slow_tool_and_a_long_result() -> None:
    shape: dict[str, Any] = {"type": "object", "properties": {}}
    tools = [
        Tool(name=name, about="", parameters=shape, function=f"{__name__}:{name}")
        for name in ("slow", "long")
    ]
    model = ToolsModel(tools, ToolLimits(seconds=0.5, output=100))
    calls = tuple(ToolCall(id=name, name=name, arguments="{}") for name in ("slow", "long"))
    asked = {"role": "assistant", "content": "", "tool_calls": calls}
    said = asyncio.run(model.complete([asked], Sampling(), key="k"))  # type: ignore[list-item]
    first, second = json.loads(str(said.content))
    assert "took over 0.5 seconds" in first["content"]
    assert second["content"].endswith("[cut: 100 of 4,890 bytes]")


def test_calls_and_results_are_columns_and_go_with_a_set(tmp_path: Path) -> None:
    with Provider(Plan(), reply=shopper) as server:
        talks = built(tmp_path, server, "openai/s", 2)
    run = Run.open(tmp_path / "run")
    rows = query("SELECT tool_calls, tool_results FROM turns WHERE speaker = 'assistant'", run)
    assert [len(json.loads(calls)) for calls, _ in rows] == [3, 3]
    assert all("pence" in results for _, results in rows)
    for target in ("trl", "openai", "sharegpt", "ms-swift"):
        chosen = ((talk, None, 1) for talk in run.conversations())
        export_conversations(run, target, tmp_path / target, chosen)
    said = {
        name: json.loads(next((tmp_path / name).glob("*.jsonl")).read_text().splitlines()[0])
        for name in ("trl", "openai", "sharegpt", "ms-swift")
    }
    wire = said["openai"]["messages"]
    roles = ["system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [m["role"] for m in wire] == roles
    assert json.loads(wire[2]["tool_calls"][0]["function"]["arguments"]).keys() == {"item"}
    assert said["trl"]["messages"][2]["tool_calls"][0]["function"]["arguments"].keys() == {"item"}
    assert [m["from"] for m in said["sharegpt"]["conversations"]][3:7] == [
        "function_call", "function_call", "observation", "observation",
    ]  # fmt: skip
    assert [m["role"] for m in said["ms-swift"]["messages"]][3:5] == ["tool_call"] * 2
    assert json.loads(said["sharegpt"]["tools"])[0]["function"]["name"] == "lookup"
    assert said["openai"]["tools"][1]["function"]["name"] == "calculate"
    with open_portions(run, tmp_path) as parts:
        write_tables(parts, tmp_path / "set", None)
    files = sorted(str(p) for p in (tmp_path / "set" / "conversations").glob("*.parquet"))
    loaded = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path)
    )
    assert loaded[0]["messages"][2]["tool_calls"][0]["function"]["name"] == "lookup"
    assert loaded[0]["messages"][3]["tool_call_id"]
    assert json.loads(loaded[0]["tools"])[0]["type"] == "function"
    _, user = judge_messages(
        resolve_judge("x/y").spec, talks[0], run.examples[talks[0].example_id], key="k"
    )
    assert "] Assistant calls lookup:" in str(user["content"])
    assert "] Result of lookup:\n> " in str(user["content"])


def query(sql: str, run: Run) -> list[tuple[Any, ...]]:
    connection = connect_runs([run])
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
