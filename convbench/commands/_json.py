"""`--json`: print the answer of a command as one document on stdout instead of lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ConfigDict, Field, SerializeAsAny

from convbench.commands._command import INTERRUPTED, Answer, RunContext
from convbench.errors import ConvbenchError
from convbench.util.described import DescribedModel
from convbench.util.printable import make_printable
from convbench.util.redact import redact_text


class Spent(Answer):
    """Spending of a command's model calls."""

    usd: float | None
    """Dollars, failed attempts included; null if a price is unknown."""
    tokens: int
    """Tokens of prompts and replies."""
    attempts: int
    """Number of requests that were sent."""


class Envelope(DescribedModel):
    """The document that every command prints with `--json`."""

    model_config = ConfigDict(defer_build=True)

    command: str
    """The command; empty if none was typed."""
    exit_code: int = 0
    """Exit code of the command: 0 on success."""
    error: str | None = None
    """The error in one line, if the command failed."""
    notes: list[str] = Field(default_factory=list)
    """Further notes for the user, in the order in which they were added."""
    next: list[str] = Field(default_factory=list)
    """Commands to type next."""
    spent: Spent | None = None
    """Spending of its model calls; null for a command that calls no model."""
    result: SerializeAsAny[Answer] | None = None
    """The answer in the command's own schema; null if there is none."""


def print_envelope(context: RunContext, failure: BaseException | None) -> None:
    """Print, on stdout, the JSON document of a command that has ended, with API keys redacted.

    `failure` is the error that ended it, from which exit code and message are taken; None: the
    context's.
    """
    code, line = (context.exit_code, None) if failure is None else _code_and_line(failure)
    spent = None
    if context.session is not None:
        ledger = context.session.ledger
        usd = None if ledger.unpriced else ledger.all.usd
        spent = Spent(usd=usd, tokens=ledger.all.tokens, attempts=ledger.all.attempts)
    _print_document(
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
    """In the body of `with`, print the document of an error if `--json` is among the words, and
    raise it again.

    It is for a command that cannot be parsed. `typer.Exit`, as of `--help`, prints nothing.
    """
    import typer

    json = "--json" in typed  # the parser takes words out of the list as it reads them
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        if json:
            code, line = _code_and_line(error)
            _print_document(Envelope(command=command, exit_code=code, error=line))
        raise


def _code_and_line(error: BaseException) -> tuple[int, str]:
    """Return (exit code of an error, its message in one line)."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, ConvbenchError):
        return error.exit_code, " ".join(redact_text(str(error)).split())
    usage = getattr(error, "format_message", None)  # of what the parser of options refuses
    if usage is not None:
        return int(getattr(error, "exit_code", 2)), " ".join(redact_text(usage()).split())
    return 1, type(error).__name__


def notes_of(error: BaseException | None) -> list[str]:
    """Return the notes of a ConvbenchError, one line each: further problems of the same kind."""
    notes = getattr(error, "__notes__", ()) if isinstance(error, ConvbenchError) else ()
    return [" ".join(redact_text(note).split()) for note in notes]


def _print_document(envelope: Envelope) -> None:
    text = redact_text(envelope.model_dump_json(indent=1, ensure_ascii=False))
    sys.stdout.write((make_printable(text) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


def answer_schema(answer: type[Answer]) -> dict[str, Any]:
    """Return the JSON schema, as a dict, of the document that a command with this answer prints
    with `--json`.

    Its `result` is this answer or null; definitions are in `$defs`.
    """
    document = Envelope.model_json_schema(mode="serialization")
    own = answer.model_json_schema(mode="serialization", ref_template="#/$defs/{model}")
    document["$defs"] = {**document.get("$defs", {}), **own.pop("$defs", {}), answer.__name__: own}
    document["$defs"].pop("Answer", None)
    ref = {"$ref": f"#/$defs/{answer.__name__}"}
    document["properties"]["result"] = {"anyOf": [ref, {"type": "null"}], "default": None}
    return document
