"""Read defaults of options from `convbench.toml` here and the user's own file, keys from `.env`.

Typed options override the folder's file, and that the user's. A folder may come from anywhere (a
clone, a download), so its file may not set where keys go or which code runs (`Opt.own_file_only`),
and from its `.env` only keys are taken, never addresses, paths or settings.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from convbench.commands._words import ENTRIES, load_command
from convbench.errors import SpecError
from convbench.options.declare import FlatOption, flat_options, option_word
from convbench.util.regular import open_to_read

HERE = Path("convbench.toml")
SWITCH = "CONVBENCH_CONFIG"
"""Environment variable: with `off` no file of defaults and no `.env` is read."""
EVERY = "all"
"""Name of the table whose options apply to every command that has them."""
KEY_NAME = re.compile(r"[A-Z0-9_]{1,60}_(API_KEY|TOKEN)|AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY)")
LARGEST = 64 << 10
"""Largest number of bytes of a file."""


@cache
def _file_options(word: str) -> dict[str, FlatOption]:
    """Return the options of a command that a file may set, by their words on the command line."""
    options = flat_options(load_command(word).options_class)
    return {option_word(option): option for option in options if not option.opt.argument}


def users_file() -> Path:
    """Return the path of the user's own file of defaults, which need not exist.

    It is `convbench/config.toml` in XDG_CONFIG_HOME, or in `~/.config` without that variable.
    """
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "convbench" / "config.toml"


def has_file() -> bool:
    """Return True if the user's `convbench/config.toml` or `./convbench.toml` exists, be it a
    folder or a dangling link. False if CONVBENCH_CONFIG is `off`."""
    return os.environ.get(SWITCH) != "off" and any(map(os.path.lexists, (users_file(), HERE)))


def default_map() -> dict[str, dict[str, Any]]:
    """Return the values in the files of defaults by command, then by field; empty without files or
    if turned off.

    The folder's file overrides the user's, and in a file a command's own table overrides `[all]`.
    Raises SpecError naming file and key for an unknown command or option, an invalid value, or one
    that a folder's file may not set.
    """
    defaults: dict[str, dict[str, Any]] = {}
    if os.environ.get(SWITCH) == "off":
        return defaults
    for path in (users_file(), HERE):
        tables = _read_file(path)
        for table in sorted(tables, key=lambda name: name != EVERY):
            _lay_table(defaults, path, table, tables[table])
    return defaults


def option_origin(word: str, name: str) -> str:
    """Return the path, as text, of the file of defaults that set an option of a command, given by
    its field.

    It is `convbench.toml` if that has the option, else the user's file, whether or not that has it.
    """
    here = _read_file(HERE)
    flag = next(flag for flag, option in _file_options(word).items() if option.name == name)
    is_here = any(flag in _with_dashes(here.get(table, {})) for table in (word, EVERY))
    return str(HERE) if is_here else str(users_file())


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with open_to_read(path) as file:
            data = file.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise SpecError(f"{path}: found more than {LARGEST:,} bytes; expected fewer")
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise SpecError(f"{path}: is not valid TOML: {why}") from None


def _with_dashes(table: Any) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items()} if table else {}


def _lay_table(defaults: dict[str, dict[str, Any]], path: Path, table: str, content: Any) -> None:
    """Add one table of a file to the defaults. Raises SpecError for an unknown command or option,
    an invalid value, or one that a folder's file may not set."""
    words = [table] if table != EVERY else list(ENTRIES)
    if table != EVERY and table not in ENTRIES:
        raise SpecError(
            f"{path}: [{table}]: found no such command; {_suggest_word(table, ENTRIES)}"
        )
    if not isinstance(content, dict):
        raise SpecError(f"{path}: {table}: found a value; expected a table, e.g. [build]")
    for key, value in _with_dashes(content).items():
        where = f"{path}: [{table}] {key}"
        having = [word for word in words if key in _file_options(word)]
        if not having:
            options = sorted({name for word in words for name in _file_options(word)})
            raise SpecError(f"{where}: found no such option; {_suggest_word(key, options)}")
        _check_value(where, value)
        for word in having:
            option = _file_options(word)[key]
            if option.opt.own_file_only and path == HERE:
                raise SpecError(
                    f"{where}: found in a folder's file; expected it on the command line or in "
                    f"{users_file()}, since it steers where keys go or which code runs"
                )
            defaults.setdefault(word, {})[option.name] = value


def _check_value(where: str, value: Any) -> None:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float | bool) for item in items):
        raise SpecError(f"{where}: found {value!r:.80}; expected a text, a number, true or a list")


def _suggest_word(word: str, known: Mapping[str, Any] | list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"


def keys_of_env(path: Path = Path(".env")) -> list[str]:
    """Set, in the environment, the keys in `.env` that it lacks, and return their names, in the
    file's order.

    Only variables named as keys (`…_API_KEY`, `…_TOKEN`, AWS's two) are taken: an address could
    send a key elsewhere. Values are not expanded. Nothing is taken without the file, from one of
    more than 64 KiB, or if CONVBENCH_CONFIG is `off`.
    """
    if os.environ.get(SWITCH) == "off" or not path.is_file() or path.stat().st_size > LARGEST:
        return []
    from dotenv import dotenv_values

    taken = []
    for name, value in dotenv_values(path, interpolate=False).items():
        if value and KEY_NAME.fullmatch(name) and not os.environ.get(name):
            os.environ[name] = value
            taken.append(name)
    return taken
