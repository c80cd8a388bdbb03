"""`--json`: what a command has to tell as one document on stdout, in place of its lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from pydantic import ConfigDict, Field, SerializeAsAny

from convbench.blot import keys
from convbench.cli.console import out
from convbench.errors import ConvbenchError
from convbench.printable import printable
from convbench.schema.described import Described

if TYPE_CHECKING:
    from convbench.engine.budget import Budget

INTERRUPTED = 130


class Answer(Described):
    """What one command has to tell; each has a class of its own in `cli.answers`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    """Built when one is made: without `--json` few are wanted."""


class Spent(Answer):
    """What a command's calls took."""

    usd: float | None
    """Dollars, lost attempts too; null where a price is unknown."""
    tokens: int
    """Tokens of prompts and replies."""
    attempts: int
    """Requests that were sent."""


class Envelope(Described):
    """What every command prints with `--json`."""

    model_config = ConfigDict(defer_build=True)

    command: str
    """The word that was typed; empty where none was."""
    exit_code: int = 0
    """The code the command ends with: 0 where all went well."""
    error: str | None = None
    """The one line of what is wrong, where it could not be done."""
    notes: list[str] = Field(default_factory=list)
    """What else the user should know, in the order it was said."""
    next: list[str] = Field(default_factory=list)
    """Commands that go on from here."""
    spent: Spent | None = None
    """What its calls took; null for a command that calls no model."""
    result: SerializeAsAny[Answer] | None = None
    """The answer, by the command's own schema; null where there is none."""


_open: list[Envelope] = []
"""The document that is being filled; empty without `--json`."""


def give(answer: Answer) -> None:
    """Take a command's answer; without `--json` it is not wanted."""
    for envelope in _open:
        envelope.result = answer


def noted(text: str) -> None:
    """Take a note that is said on stderr too."""
    for envelope in _open:
        envelope.notes.append(text)


def named_next(command: str) -> None:
    """Take a command that goes on from here."""
    for envelope in _open:
        envelope.next.append(command)


def spent(ledger: Budget) -> None:
    """Take what a command's ledger holds at its end."""
    for envelope in _open:
        usd = None if ledger.unpriced else ledger.all.usd
        envelope.spent = Spent(usd=usd, tokens=ledger.all.tokens, attempts=ledger.all.attempts)


def wanted() -> bool:
    """Whether stdout holds one JSON document and nothing else."""
    return bool(_open)


@contextmanager
def answering(command: str, json: bool) -> Iterator[None]:
    """Print the command's document when it ends, however it ends. The lines it says on stdout are
    left out; notes and progress go to stderr as ever, and the exit code is the same."""
    if not json:
        yield
        return
    envelope = Envelope(command=command)
    _open.append(envelope)
    quiet, out.quiet = out.quiet, True
    try:
        yield
    except typer.Exit as ended:
        envelope.exit_code = ended.exit_code
        raise
    except BaseException as error:
        envelope.exit_code, envelope.error = _code_and_line(error)
        envelope.notes += notes_of(error)
        raise
    finally:
        out.quiet = quiet
        _open.remove(envelope)
        _print(envelope)


@contextmanager
def answering_mistakes(command: str, typed: Sequence[str]) -> Iterator[None]:
    """Print the document of a command that cannot be read as it was typed, where `--json` is
    among the words."""
    json = "--json" in typed  # the parser takes words out of the list as it reads them
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        if json:
            code, line = _code_and_line(error)
            _print(Envelope(command=command, exit_code=code, error=line))
        raise


def _code_and_line(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error and the line that says it."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, ConvbenchError):
        return error.exit_code, " ".join(keys(str(error)).split())
    usage = getattr(error, "format_message", None)  # of what the parser of options refuses
    if usage is not None:
        return int(getattr(error, "exit_code", 2)), " ".join(keys(usage()).split())
    return 1, type(error).__name__


def notes_of(error: BaseException) -> list[str]:
    """Return what else is wrong, a line each, where an error's own line says the first alone."""
    notes = getattr(error, "__notes__", ()) if isinstance(error, ConvbenchError) else ()
    return [" ".join(keys(note).split()) for note in notes]


def _print(envelope: Envelope) -> None:
    text = keys(envelope.model_dump_json(indent=1, ensure_ascii=False))
    sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


def schema(answer: type[Answer]) -> dict[str, Any]:
    """Return the JSON schema of what a command of this answer prints."""
    whole = Envelope.model_json_schema(mode="serialization")
    own = answer.model_json_schema(mode="serialization", ref_template="#/$defs/{model}")
    whole["$defs"] = {**whole.get("$defs", {}), **own.pop("$defs", {}), answer.__name__: own}
    whole["$defs"].pop("Answer", None)
    ref = {"$ref": f"#/$defs/{answer.__name__}"}
    whole["properties"]["result"] = {"anyOf": [ref, {"type": "null"}], "default": None}
    return whole
