"""Compare JSON values with a golden file, or write it.

Objects have sorted keys and floats six digits. A file `.jsonl` has a value a line, a file `.json`
one value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent
SHOWN = 40
"""Characters that are shown before and after the first one that differs."""


@dataclass(frozen=True)
class Recorder:
    """What the fixture `golden` gives: compares with golden files, or writes them."""

    update: bool

    def compare(
        self, name: str, values: Iterable[Any], *, digits: int = 6, relative: float = 1e-5
    ) -> None:
        """Assert that these JSON values are those of the golden file `name`, such as
        `rows/swift.jsonl`; floats to `relative`. With `--update-golden` write the file, floats at
        `digits` significant digits."""
        path = GOLDEN / name
        found = [rounded(value, digits) for value in values]
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_text(path, found), encoding="utf-8")
        assert path.exists(), f"{name}: no golden file; write it: pytest {name} --update-golden"
        wrong = first_difference(_values(path), found, relative)
        assert wrong is None, f"{name}: {wrong}"


def rounded(value: Any, digits: int) -> Any:
    """Return a JSON value with floats at so many significant digits, tuples as lists."""
    if isinstance(value, dict):
        return {str(key): rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner, digits) for inner in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def first_difference(golden: Any, found: Any, relative: float, where: str = "") -> str | None:
    """Return where two JSON values differ first and how, in one line; None if they are equal."""
    both = golden, found
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in sorted(golden.keys() | found.keys()):
            if key not in found or key not in golden:
                return f"{where}.{key}: {'gone' if key in golden else 'new'}"
            if wrong := first_difference(golden[key], found[key], relative, f"{where}.{key}"):
                return wrong
        return None
    if isinstance(golden, list) and isinstance(found, list):
        for index, (old, new) in enumerate(zip(golden, found, strict=False)):
            if wrong := first_difference(old, new, relative, f"{where}[{index}]"):
                return wrong
        lengths = len(golden), len(found)
        return None if lengths[0] == lengths[1] else f"{where}: {lengths[0]} → {lengths[1]} values"
    if isinstance(golden, str) and isinstance(found, str):
        return None if golden == found else f"{where}: {_apart(golden, found)}"
    if any(isinstance(value, float) for value in both) and all(map(_is_number, both)):
        same = math.isclose(golden, found, rel_tol=relative, abs_tol=1e-12)
        return None if same else f"{where}: {golden!r} → {found!r}"
    same = type(golden) is type(found) and golden == found
    return None if same else f"{where}: {golden!r:.200} → {found!r:.200}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _apart(golden: str, found: str) -> str:
    """Return what stands around the first character that differs in two texts."""
    pairs = enumerate(zip(golden, found, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(golden), len(found)))
    shown = slice(max(0, at - SHOWN), at + SHOWN)
    return f"character {at}: {golden[shown]!r} → {found[shown]!r}"


def _text(path: Path, values: list[Any]) -> str:
    if path.suffix == ".jsonl":
        return "".join(
            json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n" for value in values
        )
    (value,) = values
    return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n"


def _values(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8")
    parts = text.split("\n") if path.suffix == ".jsonl" else [text]
    return [json.loads(part) for part in parts if part]
