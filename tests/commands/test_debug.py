"""`--debug`: a log of what happened, without keys, for its owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.typed import Typist
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

KEY = "sk-debug-0123456789abcdefghijkl"


def test_calls_are_told_one_by_one(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", KEY)
    with Provider(Plan(faults={"500": 0.3}, api_keys=(KEY,))) as server:
        said = typist(
            "build", "demo", "--debug", "--model", "hosted_vllm/policy", "--tasks", "2",
            "--samples", "1", "--temperatures", "0.5", "--api-base", server.api_base,
            "--set", f"protocol.speakers.assistant.system=say {KEY}",
        )  # fmt: skip
    assert said.code == 0, said.err
    (path,) = Path.cwd().glob("convbench-debug-*.log")
    assert f"debug log: {path.name}" in said.err
    text = path.read_text()
    assert text.count("convbench.calls: hosted_vllm/policy") >= 6
    assert "tokens" in text
    assert "typed: convbench build demo" in text
    assert KEY not in text
    assert path.stat().st_mode & 0o077 == 0


def test_a_mistake_leaves_its_traceback_there(typist: Typist) -> None:
    assert typist("build", "nothing", "--debug").code == 1
    (path,) = Path.cwd().glob("convbench-debug-*.log")
    assert "Traceback" in path.read_text()
    assert "SpecError" in path.read_text()
