"""Type a command in this process, as `convbench` would be started with it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import jsonschema
import orjson
import pytest

from convbench.__main__ import main
from convbench.commands._json import answer_schema
from convbench.commands._words import load_command
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
        code = exit_code(self._patch, words)
        found = self._capfd.readouterr()
        check_next(words, next_words(found.out, found.err))
        return Said(code, found.out, found.err)

    def json(self, *words: str) -> dict[str, Any]:
        """Run a command with --json: one document of its own schema, the code it ends with."""
        said = self(*words, "--json")
        found: dict[str, Any] = orjson.loads(said.out)
        jsonschema.validate(found, answer_schema(load_command(words[0]).answer_class))
        assert found["command"] == words[0]
        assert found["exit_code"] == said.code
        check_next(words, next_words("", more=found["next"]))
        return found


def type_here(*words: str) -> Said:
    """Run a command of weights to its end where no test's own fixtures are at hand: torch, and what
    trains with it, is imported once for all of them."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        code = exit_code(patch, words)
    check_next(words, next_words(out.getvalue(), err.getvalue()))
    return Said(code, out.getvalue(), err.getvalue())


def exit_code(patch: pytest.MonkeyPatch, words: Sequence[str]) -> int:
    """Type a command in this process; return its exit code."""
    patch.setattr(sys, "argv", ["convbench", *words])
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
