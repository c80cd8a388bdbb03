"""A user's tool server (MCP) from the spec to the record: offered, called, kept, resumed, refused
where the spec is another's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import RunError, SpecError
from convbench.store import Run
from tests.helpers import stages
from tests.support.chat.dialects import Refusal
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call
from tests.support.chat.shopper import results
from tests.support.chat.tools import CALLS
from tests.support.provider import Provider

HERE = Path(__file__).resolve().parents[1] / "support" / "tools"

PROTOCOL: dict[str, Any] = {
    "title": "one turn with a server of the user's",
    "modes": ["standard"],
    "speakers": {
        "assistant": {
            "policy": True,
            "tool_servers": {
                "shop": {
                    "command": [sys.executable, str(HERE / "shop.py")], "env": ["SHOP"],
                    "tools": ["price", "variables"],
                }
            },
        },
        "teacher": {},
    },
    "steps": [
        {"id": "question", "speaker": "teacher", "say": "{{ question }} Say a letter."},
        {"id": "answer", "speaker": "assistant"},
    ],
}  # fmt: skip


def asks(call: Call) -> str:
    if results(call.body):
        return "The answer is A."
    calls: list[dict[str, Any]] = [
        {"name": "price", "arguments": {"item": "eggs"}},
        {"name": "variables", "arguments": {}},
    ]
    return CALLS + json.dumps(calls)


def build(home: Path, server: Provider) -> None:
    stages.build_result(
        "demo", protocol="served", model="openai/s", tasks=2, run=home / "run", mode="standard",
        samples=1, temperatures=(0.7,), specs=(home / "mine",), api_base=server.api_base,
    )  # fmt: skip


def write(home: Path, protocol: dict[str, Any]) -> None:
    (home / "mine" / "protocols").mkdir(parents=True, exist_ok=True)
    (home / "mine" / "protocols" / "served.yaml").write_text(json.dumps(protocol))


def test_a_server_is_offered_called_kept_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", "corner")
    monkeypatch.setenv("SECRET_TOKEN", "s" * 30)
    write(tmp_path, PROTOCOL)
    gone = {"on": True}

    def dies(call: Call) -> str:
        said = asks(call)
        if gone["on"] and said.startswith("The answer"):
            raise Refusal(401, "invalid_request_error", "the key is gone")
        return said

    with Provider(Plan(keep_requests=20), reply=dies) as server:
        build(tmp_path, server)
        assert list(Run.open(tmp_path / "run").conversations()) == [], "ended amid the tools"
        gone["on"] = False
        asked = server.stats.summary()["calls"]
        build(tmp_path, server)
        assert server.stats.summary()["calls"] - asked == 2, "only what had no reply"
        offered = server.requests[0]["tools"]
        pulled = tmp_path / "run" / "run.json"
        run = Run.open(tmp_path / "run")
        talks = list(run.conversations())
        assert [tool["function"]["name"] for tool in offered] == ["price", "variables"]
        assert offered[0]["function"]["description"].startswith("The price of one basket")
        for talk in talks:
            assert talk.failure is None
            (one,) = talk.turns[-1].rounds
            price, names = one.results
            assert price.content == "eggs: 7 pence"
            assert "SHOP" in names.content
            assert "SECRET_TOKEN" not in names.content
        spoken = run.manifest.protocol.speakers["assistant"]
        assert [tool.wire for tool in spoken.tools] == offered, "kept as it was offered"

        manifest = json.loads(pulled.read_text())
        speaker = manifest["protocol"]["speakers"]["assistant"]
        speaker["tools"][0]["parameters"]["properties"] = {"name": {"type": "string"}}
        pulled.write_text(json.dumps(manifest))
        (tmp_path / "run" / "conversations.jsonl").write_text("")
        with pytest.raises(SpecError, match="tool price has other parameters than when"):
            stages.build(run=tmp_path / "run", api_base=server.api_base)

        manifest["pulled_from"] = "them/set@abc"
        pulled.write_text(json.dumps(manifest))
        marker = tmp_path / "started"
        speaker["tool_servers"]["shop"]["command"] = ["touch", str(marker)]
        pulled.write_text(json.dumps(manifest))
        calls = server.stats.summary()["calls"]
        with pytest.raises(SpecError, match="tool server shop: named by a downloaded spec"):
            stages.build(run=tmp_path / "run", api_base=server.api_base)
        assert server.stats.summary()["calls"] == calls
        assert not marker.exists()


@pytest.mark.exhaustive
def test_another_server_is_another_run(tmp_path: Path) -> None:
    write(tmp_path, PROTOCOL)
    with Provider(Plan(), reply=asks) as server:
        build(tmp_path, server)
        other = json.loads(json.dumps(PROTOCOL))
        other["speakers"]["assistant"]["tool_servers"]["shop"]["tools"] = ["price"]
        write(tmp_path, other)
        with pytest.raises(RunError, match="the options do not match this run"):
            build(tmp_path, server)
