"""A report's seal: its figures, and how they were asked for, so that they can be computed again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.options.report import ReportOptions
from convbench.report.data import FIGURE, as_data
from convbench.report.document import Document
from convbench.store import Run
from convbench.store.folder_seal import FILE, seal_folder

SAID = ("split", "judge", "kind", "baseline", "paper", "pairwise", "pool", "allow", "gold",
        "verdict")  # fmt: skip
"""Options that change figures."""
MOST = 20
"""Differences that are told one by one."""


def seal_report(
    made: Document,
    options: ReportOptions,
    runs: Sequence[Run],
    root: Path | None,
    files: Sequence[Path],
) -> Path:
    """Write `seal.json` beside a report's files; return it."""
    folder = files[0].parent
    places = [root] if root is not None else [run.path for run in runs]
    about = {
        "version": __version__,
        "runs": [os.path.relpath(place, folder) for place in places],
        "options": {name: getattr(options, name) for name in SAID}
        | {"against": list(options.against)},
        "figures": figures_of(made),
    }
    seal_folder(folder, "report", [file.name for file in files], about)
    return folder / FILE


def options_of(about: Mapping[str, Any], folder: Path) -> ReportOptions:
    """Return the options that a sealed report was made with. Raises TypeError, ValueError or
    KeyError for what is no seal of a report."""
    said = dict(about["options"])
    against = tuple(map(str, said.pop("against", ())))
    runs = tuple((folder / str(run)).resolve() for run in about["runs"])
    return ReportOptions(runs, against=against, **{name: said[name] for name in SAID})


def figures_of(made: Document) -> list[Any]:
    """Return the parts that tell something in numbers or words; pictures draw the same numbers."""
    parts: list[Any] = as_data(made)["parts"]
    for cell in (c for part in parts for table in part["tables"] for r in table["rows"] for c in r):
        del cell[FIGURE]  # what is printed is compared, which no other machine computes otherwise
    return [part for part in parts if part["tables"] or part["facts"] or part["notes"]]


def differences(said: Any, found: Any) -> list[str]:
    """Return where a report's figures are not those of the records: place, said, found."""
    out = []
    for place, one, two in _unequal(said, found, ""):
        out.append(f"{place}: says {one!r:.60}; the records give {two!r:.60}")
        if len(out) == MOST:
            break
    return out


def _unequal(said: Any, found: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(said, dict) and isinstance(found, dict):
        title = str(said.get("title") or said.get("caption") or "")
        where = f"{place} > {title}" if place and title else place or title
        for key in dict.fromkeys([*said, *found]):
            yield from _unequal(said.get(key), found.get(key), where)
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for number, (one, two) in enumerate(zip(said, found, strict=True), 1):
            row = _row(one)
            yield from _unequal(one, two, f"{place}, {row}" if row else f"{place}, {number}")
    elif said != found:
        yield place, said, found


def _row(cells: Any) -> str:
    """Return the name of a table's row: its first cell."""
    if isinstance(cells, list) and cells and isinstance(cells[0], dict):
        return str(cells[0].get("text", "")).strip()
    return ""
