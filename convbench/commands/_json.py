"""`--json`: what a command has to tell as one document on stdout, in place of its lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ConfigDict, Field, SerializeAsAny

from convbench.blot import keys
from convbench.commands._command import INTERRUPTED, Answer, RunContext
from convbench.described import Described
from convbench.errors import ConvbenchError
from convbench.printable import printable


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


def print_envelope(context: RunContext, failure: BaseException | None) -> None:
    """Print the document of a command at its end."""
    code, line = (context.exit_code, None) if failure is None else _code_and_line(failure)
    ledger, spent = context.ledger, None
    if ledger is not None:
        usd = None if ledger.unpriced else ledger.all.usd
        spent = Spent(usd=usd, tokens=ledger.all.tokens, attempts=ledger.all.attempts)
    _print(
        Envelope(
            command=context.word,
            exit_code=code,
            error=line,
            notes=[*context.notes, *notes_of(failure)],
            next=[command for command, _ in context.next_commands],
            spent=spent,
            result=context.answer,
        )
    )


@contextmanager
def answering_mistakes(command: str, typed: Sequence[str]) -> Iterator[None]:
    """Print the document of a command that cannot be read as it was typed, where `--json` is
    among the words."""
    import typer

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


def notes_of(error: BaseException | None) -> list[str]:
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
