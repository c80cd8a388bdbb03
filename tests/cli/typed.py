"""Type a command in this process, as `convbench` would be started with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import jsonschema
import orjson
import pytest

from convbench.cli import main
from convbench.cli.command import ANSWERS
from convbench.cli.envelope import schema
from tests.support.next_lines import check_next, next_words


@dataclass
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


class Typist:
    """Types commands and keeps what they printed apart."""

    def __init__(self, capfd: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capfd, self._patch = capfd, patch

    def __call__(self, *words: str) -> Said:
        """Run a command to its end."""
        self._capfd.readouterr()
        self._patch.setattr(sys, "argv", ["convbench", *words])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        found = self._capfd.readouterr()
        check_next(words, next_words(found.out, found.err))
        return Said(code, found.out, found.err)

    def json(self, *words: str) -> dict[str, Any]:
        """Run a command with --json: one document of its own schema, the code it ends with."""
        said = self(*words, "--json")
        found: dict[str, Any] = orjson.loads(said.out)
        jsonschema.validate(found, schema(ANSWERS[words[0]]))
        assert found["command"] == words[0]
        assert found["exit_code"] == said.code
        check_next(words, next_words("", more=found["next"]))
        return found
