"""Options that a printed command needs because the command that prints it was typed with them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib import import_module
from typing import Any

CARRIED = ("--specs", "--plugin", "--judge")
"""Where specs and functions are found, and whose verdicts count."""

_typed: dict[str, tuple[str, ...]] = {}
"""Of CARRIED, what the command under way was typed with."""


def keep_typed(word: str, values: Mapping[str, Any], flags: Mapping[str, str]) -> None:
    """Keep what a command was typed with, for what it prints. `values` and `flags` are by
    parameter. Of `judge` its judges are left out: it says whom to ask, the others whose verdicts
    count."""
    _typed.clear()
    for name, flag in flags.items():
        if flag in CARRIED and not (word == "judge" and flag == "--judge"):
            value = values.get(name)
            several = value if isinstance(value, list | tuple) else (value,)
            _typed[flag] = tuple(str(one) for one in several if one is not None)


def carrying(command: str) -> str:
    """Return a command with the options of CARRIED that it takes, that were typed, and that it
    does not say itself."""
    words = shlex.split(command)
    if words[:1] != ["convbench"] or not any(_typed.values()):
        return command
    taken = _flags_of(words[1])
    said = {word.partition("=")[0] for word in words}
    missing = [flag for flag in _typed if flag in taken - said]
    return command + "".join(
        f" {flag} {shlex.quote(value)}" for flag in missing for value in _typed[flag]
    )


def _flags_of(word: str) -> set[str]:
    """Return the flags that a command takes."""
    from convbench.cli.command import options_of
    from convbench.cli.main import file_of
    from convbench.options.declare import flat, said_as

    import_module(f"convbench.cli.{file_of(word)}")
    return {f"--{said_as(one)}" for one in flat(options_of(word))}
