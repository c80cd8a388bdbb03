"""Counts that may only fall: names that say little, files too long or too short, lines that the
formatter may not touch.

After they fell, `CONVBENCH_RATCHETS=write pytest tests/house/test_ratchets.py` writes them down; it
never raises one.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).parent / "ratchets.json"
WRITE = os.environ.get("CONVBENCH_RATCHETS") == "write"
BANNED = frozenset(
    "found one said told had given made kept whole place plain wanted asked moved there".split()  # noqa: SIM905
)
"""Whole names that say nothing of what they hold."""
LONG, SHORT = 600, 60
"""Lines of a file."""
SLACK = 0.02
"""By how much a count may have fallen without being written down."""


def sources() -> list[Path]:
    """Return every file of the package and of the trainers."""
    return sorted(path for top in ("convbench", "trainers") for path in (ROOT / top).rglob("*.py"))


@cache
def nodes() -> list[ast.AST]:
    """Return every node of every file's syntax."""
    return [node for path in sources() for node in ast.walk(ast.parse(path.read_text()))]


def functions() -> list[str]:
    """Return the names of all functions and methods but dunders, without leading underscores."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in nodes() if isinstance(node, kinds)]
    return [name.strip("_") for name in names if not name.startswith("__")]


def all_names() -> Iterator[str]:
    """Yield the name of everything that is defined: functions, classes, arguments, variables."""
    for node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


INTERFACE = re.compile(r"Interfaces of a folder's files: (.+?)\.$", re.M | re.S)
"""The line of docs/map.md that names what each file of a folder has by the same name."""
SHARED_BY = 3
"""Modules that may have a public function or class of one name."""


def public_names() -> dict[str, list[str]]:
    """Return the modules that define each public function or class, by its name."""
    names: dict[str, list[str]] = {}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for path in sources():
        defined = {
            node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)
        }
        for name in defined:
            if not name.startswith("_"):
                names.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return names


def interface_names() -> set[str]:
    """Return the names that docs/map.md lists as the interface of a folder's files."""
    line = INTERFACE.search((ROOT / "docs" / "map.md").read_text())
    return set(re.findall(r"`(\w+)`", line.group(1))) if line else set()


def lengths() -> list[int]:
    """Return the lines of every file but the one-line ones of packages."""
    return [path.read_text().count("\n") for path in sources() if path.name != "__init__.py"]


def counts() -> dict[str, int]:
    """Return every count by its name."""
    one_word = [name for name in functions() if "_" not in name]
    return {
        "one-word function names": len(one_word),
        "bare participles": sum(name.endswith("ed") for name in one_word),
        "banned names": sum(name.strip("_").lower() in BANNED for name in all_names()),
        f"files over {LONG} lines": sum(lines > LONG for lines in lengths()),
        f"files under {SHORT} lines": sum(lines < SHORT for lines in lengths()),
        "fmt: skip": sum(path.read_text().count("# fmt: skip") for path in sources()),
    }


def test_counts_only_fall() -> None:
    found, most = counts(), json.loads(FILE.read_text())
    if WRITE:
        most = {name: min(count, most.get(name, count)) for name, count in found.items()}
        FILE.write_text(json.dumps(most, indent=1, sort_keys=True) + "\n")
    risen = {name: count for name, count in found.items() if count > most[name]}
    assert not risen, f"found {risen}; expected at most {most}"
    fell = {name: n for name, n in found.items() if n < most[name] * (1 - SLACK) - 1}
    assert not fell, f"fell to {fell}: write them down"


def test_a_public_name_stands_for_one_thing() -> None:
    interface = interface_names()
    names = public_names()
    several = {
        name: paths
        for name, paths in names.items()
        if len(paths) > SHARED_BY and name not in interface
    }
    assert not several, (
        f"found in more than {SHARED_BY} modules: {several}; docs/map.md lists interfaces"
    )
    unused = {name for name in interface if len(names.get(name, ())) <= SHARED_BY}
    assert not unused, f"docs/map.md lists {unused}, which few files have"
