"""The tool that runs a model's programs: what they compute is told, and what they may not do."""

from __future__ import annotations

import asyncio
import json

import pytest

from convbench.errors import ConvbenchError
from convbench.models.tools import ToolsModel
from convbench.sandbox import boundary
from convbench.schema import Sampling, Tool, ToolCall, ToolLimits, ToolResult

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
