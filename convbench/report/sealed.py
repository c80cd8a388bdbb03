"""A report's seal: its figures and options, from which `verify` can compute it again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile, zip_longest
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.answers.disguises import enclosed
from convbench.options.report import ReportOptions
from convbench.report.document import Document
from convbench.report.files import FIGURE, WRITERS, as_data, text
from convbench.store import Run
from convbench.store.folder_seal import FILE, seal_folder

DRAWN = {"plots": False, "columns": "two", "titles": False}
"""Options that change pages but no figure, with their values for seals that lack them."""
SAID = (
    "split",
    "judge",
    "kind",
    "baseline",
    "paper",
    "pairwise",
    "pool",
    "allow",
    "gold",
    "verdict",
)
"""Options that change figures."""
MOST = 20
"""Most differences that are listed."""
_SVG, _SVG_END = re.compile(r"<svg[^<>]*+>"), re.compile(r"</svg>")


def seal_report(
    made: Document,
    options: ReportOptions,
    runs: Sequence[Run],
    root: Path | None,
    files: Sequence[Path],
) -> Path:
    """Write `seal.json` into the folder of a report's files; return its path."""
    folder = files[0].parent
    places = [root] if root is not None else [run.path for run in runs]
    about = {
        "version": __version__,
        "runs": [os.path.relpath(place, folder) for place in places],
        "options": {name: getattr(options, name) for name in (*SAID, *DRAWN)}
        | {"against": list(options.against)},
        "figures": figures_of(made),
    }
    seal_folder(folder, "report", [file.name for file in files], about)
    return folder / FILE


def options_of(about: Mapping[str, Any], folder: Path) -> ReportOptions:
    """Return the options that a sealed report was made with. Raises TypeError, ValueError or
    KeyError if `about` is not a report's seal."""
    said = dict(about["options"])
    against = tuple(map(str, said.pop("against", ())))
    runs = tuple((folder / str(run)).resolve() for run in about["runs"])
    drawn = {name: said.get(name, default) for name, default in DRAWN.items()}
    return ReportOptions(runs, against=against, **{name: said[name] for name in SAID}, **drawn)


def figures_of(made: Document) -> list[Any]:
    """Return the document's parts that have tables, facts or notes, as data without pictures."""
    parts: list[Any] = as_data(made)["parts"]
    for cell in (c for part in parts for table in part["tables"] for r in table["rows"] for c in r):
        del cell[FIGURE]  # only printed text is compared: it is the same on every machine
    return [part for part in parts if part["tables"] or part["facts"] or part["notes"]]


def differences(said: Any, found: Any) -> list[str]:
    """Return where a report's sealed figures differ from those computed from the records, at most
    MOST lines."""
    out = []
    for place, one, two in _unequal(said, found, ""):
        out.append(f"{place}: says {one!r:.60}; the records give {two!r:.60}")
        if len(out) == MOST:
            break
    return out


def unequal_pages(made: Document, folder: Path, names: Collection[str]) -> Iterator[str]:
    """Yield where a report's pages differ from those of the document computed from the records.
    `names` are the files of its folder; those that are no pages are ignored."""
    for form, (_, ending) in WRITERS.items():
        name = f"report.{ending}"
        if name in names:
            said = (folder / name).read_text(encoding="utf-8", errors="replace")
            again = text(replace(made, runs=_runs_as_typed(made, said, form)), form)
            yield from islice(_unequal_lines(name, said, again), MOST)


def _without_drawings(page: str) -> str:
    parts, at = list[str](), 0
    for begin, end in enclosed(page, _SVG, _SVG_END):
        parts += (page[at : begin.start()], "<svg>")
        at = end.end()
    return "".join([*parts, page[at:]])


def _unequal_lines(name: str, said: str, again: str) -> Iterator[str]:
    """Yield the lines that differ. Drawings are left out, because another version of matplotlib
    draws differently."""
    one, two = (_without_drawings(page).split("\n") for page in (said, again))
    for number, (a, b) in enumerate(zip_longest(one, two, fillvalue=""), 1):
        if a != b:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b)))  # noqa: B905
            a, b = (line[max(0, same - 20) :] for line in (a, b))
            yield f"{name}:{number}: says {a!r:.80}; the records give {b!r:.80}"


def _runs_as_typed(made: Document, said: str, form: str) -> tuple[str, ...]:
    """Return the runs' folders as written in a JSON report, if they have the same names as the
    document's: they may have been typed differently or moved since."""
    if form != "json":
        return made.runs
    try:
        typed = tuple(map(str, json.loads(said)["runs"]))
    except (ValueError, KeyError, TypeError):
        return made.runs
    same = [Path(one).resolve().name for one in typed] == [Path(one).name for one in made.runs]
    return typed if same else made.runs


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
