"""The page on the command line: its commands run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.helpers.typed import Typist

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "command-line.md"
ELSEWHERE = ("--install-completion", "<TAB>", "show arc", "show 3f9a0c12")
"""Lines that need a shell, the Hub, or a conversation of the reader's own."""


def test_commands_run_as_printed(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVBENCH_CONFIG", "off")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    printed = [line for form, block in blocks if not form for line in block.splitlines()]
    lines = [line.partition("#")[0].strip() for line in printed]
    typed = [line for line in lines if not any(part in line for part in ELSEWHERE)]
    assert len(typed) > 8
    for line in typed:
        said = typist(*shlex.split(line.partition("|")[0])[1:])
        assert said.code == 0, (line, said.err)
