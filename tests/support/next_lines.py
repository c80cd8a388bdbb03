"""What commands print to be typed next: each such line is one that the command line takes, with
the flags that it needs of the command that printed it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from functools import cache

import click
import typer

NEXT = re.compile(r"^next: (convbench .*?)(?:   .*)?$", re.M)
AGAIN = re.compile(r"(?:again|Resume): (convbench .*)$", re.M)
NEEDED = ("--specs", "--plugin", "--judge", "--allow-calls")
"""Flags without which a next command finds less than the one before, or something else."""


@cache
def _commands() -> dict[str, click.Command]:
    from tests.support.app import app

    commands: dict[str, click.Command] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return commands


def next_words(out: str, err: str = "", more: Iterable[str] = ()) -> list[list[str]]:
    """Return the commands that a command printed, as words without the first; `more` are those of
    a JSON document."""
    lines = [*NEXT.findall(out), *AGAIN.findall(err), *more]
    return [shlex.split(line)[1:] for line in lines if line.startswith("convbench ")]


def check_next(typed: Sequence[str], found: Iterable[Sequence[str]]) -> None:
    """Fail where a printed command cannot be typed, or lacks a flag of the one that printed it.
    `judge --judge` says whom to ask, which the command after it need not know."""
    for words in found:
        _parse(words)
        taken = {flag for one in _commands()[words[0]].params for flag in one.opts}
        for flag in NEEDED:
            if flag in taken and not (flag == "--judge" and typed[0] == "judge"):
                fewer = f"{shlex.join(typed)} prints {shlex.join(words)}"
                assert _times(words, flag) >= _times(typed, flag), fewer


def _parse(words: Sequence[str]) -> None:
    assert words[0] in _commands(), f"printed as next: {shlex.join(words)}"
    try:
        _commands()[words[0]].make_context(words[0], list(words[1:]))
    except click.ClickException as error:
        raise AssertionError(f"printed as next: {shlex.join(words)}: {error.message}") from error


def _times(words: Sequence[str], flag: str) -> int:
    return sum(one.partition("=")[0] == flag for one in words)
