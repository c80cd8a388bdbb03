"""The commands of the page about tools run as they are printed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from convbench.__main__ import main
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "tools.md"
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith("convbench ")
]


def test_commands_run_as_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    assert [command[1] for command in COMMANDS] == ["build", "query"]
    with Provider(Plan()) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        for command in COMMANDS:
            monkeypatch.setattr(sys, "argv", command)
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, capsys.readouterr()
            out = capsys.readouterr().out
            assert ("(20 rows)" in out) is (command[1] == "query")
