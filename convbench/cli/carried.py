"""Options that a printed command needs because the command that prints it was typed with them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from convbench.blot import address, shown_address

CARRIED = ("--specs", "--plugin", "--judge", "--allow-calls")
"""Where specs and functions are found, whose verdicts count, and whom a pulled set may call."""
ADDRESS = "--api-base"
AGAIN = (ADDRESS, "--set", "--cache", "--vllm-python", "--devices")
"""What the same command needs again; to another one an address is another model's."""
ADDRESSED = ("status", "cancel")
"""Commands whose address is also that of what they print: the server that works on the batches."""

FlagsOf = Callable[[str], set[str]]
"""The flags that a command takes, by its word."""

_flags_of: list[FlagsOf] = []
_typed: dict[str, tuple[str, ...]] = {}
"""Of these, what the command under way was typed with."""
_word: list[str] = []
"""The command under way."""


def keep_typed(
    word: str, values: Mapping[str, Any], flags: Mapping[str, str], flags_of: FlagsOf
) -> None:
    """Keep what a command was typed with, for what it prints. `values` and `flags` are by
    parameter; `flags_of` is asked of the commands that it prints. Of `judge` its judges are left
    out: it says whom to ask, the others whose verdicts count."""
    _typed.clear()
    _flags_of[:], _word[:] = [flags_of], [word]
    for name, flag in flags.items():
        if flag in CARRIED + AGAIN and not (word == "judge" and flag == "--judge"):
            value = values.get(name)
            several = value if isinstance(value, list | tuple) else (value,)
            _typed[flag] = tuple(str(one) for one in several if one is not None)


def carrying(command: str) -> str:
    """Return a command with the options of CARRIED that it takes, that were typed, and that it
    does not say itself; with those of AGAIN too where it is the one under way. A key in an address
    is not printed."""
    return _without_keys(_with_typed(command))


def _with_typed(command: str) -> str:
    words = shlex.split(command)
    if words[:1] != ["convbench"] or not any(_typed.values()):
        return command
    taken = _flags_of[0](words[1])
    said = {word.partition("=")[0] for word in words}
    same = words[1:2] == _word or _word[0] in ADDRESSED
    missing = [flag for flag in _typed if flag in taken - said and (same or flag not in AGAIN)]
    return command + "".join(
        f" {flag} {shlex.quote(value)}" for flag in missing for value in _typed[flag]
    )


def _without_keys(command: str) -> str:
    for value in _typed.get(ADDRESS, ()):
        for url in value.split(","):
            if address(url) != url:
                command = command.replace(url, shown_address(url))
    return command
