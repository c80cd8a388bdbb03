"""The tool that runs a model's programs: what they compute is told, and what they may not do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from convbench.errors import ConvbenchError
from convbench.models.tools import ToolsModel
from convbench.sandbox import boundary
from convbench.schema import Sampling, Tool, ToolCall, ToolLimits, ToolResult
from convbench.store import Run
from tests.helpers import stages
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call
from tests.support.chat.shopper import results
from tests.support.chat.tools import CALLS
from tests.support.provider import Provider

TOOL = Tool(
    name="python", about="Run a program; set `result`.", python=True,
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _walled() -> None:
    try:
        boundary()
    except ConvbenchError as error:
        pytest.skip(str(error))


def ran(*programs: str, **limits: float) -> list[ToolResult]:
    """Results of programs called at once."""
    calls = tuple(
        ToolCall(id=str(i), name="python", arguments=json.dumps({"code": code}))
        for i, code in enumerate(programs)
    )
    model = ToolsModel([TOOL], ToolLimits.model_validate(limits))
    asked = {"role": "assistant", "content": "", "tool_calls": calls}
    said = asyncio.run(model.complete([asked], Sampling(), key="k"))  # type: ignore[list-item]
    return [ToolResult.model_validate(one) for one in json.loads(str(said.content))]


def test_programs_compute_and_are_walled_in() -> None:
    right, unset, raises, reads, connects = ran(
        "import math\nresult = math.comb(10, 3)",
        "x = 1",
        "result = [][1]",
        "result = open('/etc/passwd').read()",
        "import socket\nresult = socket.create_connection(('127.0.0.1', 9), 1)",
        seconds=60,
    )
    assert (right.content, right.error) == ("120", False)
    assert "set `result`" in unset.content
    assert "IndexError" in raises.content
    assert all(one.error for one in (unset, raises, reads, connects))
    assert "root:" not in reads.content


def test_a_program_that_does_not_end_is_ended() -> None:
    (found,) = ran("while True: pass", seconds=4)
    assert found.error


def test_a_conversation_runs_programs_and_is_told_their_results(tmp_path: Path) -> None:
    speaker = {"policy": True, "tools": [TOOL.model_dump(exclude_defaults=True)]}
    protocol = {
        "title": "one turn with programs",
        "modes": ["standard"],
        "speakers": {"assistant": speaker, "teacher": {}},
        "steps": [
            {"id": "question", "speaker": "teacher", "say": "{{ question }} Say a letter."},
            {"id": "answer", "speaker": "assistant"},
        ],
    }
    (tmp_path / "protocols").mkdir()
    (tmp_path / "protocols" / "computes.yaml").write_text(json.dumps(protocol))
    program = {"name": "python", "arguments": {"code": "result = 6 * 7"}}

    def computes(call: Call) -> str:
        return "The answer is A." if results(call.body) else CALLS + json.dumps([program])

    with Provider(Plan(), reply=computes) as server:
        built = stages.build_result(
            "demo", protocol="computes", model="openai/s", tasks=1, run=tmp_path / "run",
            mode="standard", samples=1, temperatures=(0.7,), specs=(tmp_path,),
            api_base=server.api_base,
        )  # fmt: skip
    assert built.path is not None
    (talk,) = Run.open(built.path).conversations()
    (one,) = talk.turns[-1].rounds
    assert [(each.content, each.error) for each in one.results] == [("42", False)]
    assert talk.turns[-1].content == "The answer is A."
