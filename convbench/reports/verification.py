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
from convbench.answers.disguises import find_enclosed
from convbench.models.weights_path import folder_of, weights_fingerprint
from convbench.options.report import ReportOptions
from convbench.reports.document import Document
from convbench.reports.writers import FIGURE, WRITERS, as_data, render_text
from convbench.schema.run import EVALUATION
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint
from convbench.store.folder_seal import FILE, seal_folder

PAGE_OPTIONS = {"plots": False, "columns": "two", "titles": False}
"""Options that change pages but no figure, with their values for seals that lack them."""
FIGURE_OPTIONS = (
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
    document: Document,
    options: ReportOptions,
    runs: Sequence[Run],
    root: Path | None,
    files: Sequence[Path],
) -> Path:
    """Write `seal.json` into the folder of a report's files; return its path.

    It holds a digest of each file, the version, the runs' paths relative to the folder, the options
    and the printed figures. `files` must not be empty.
    """
    folder = files[0].parent
    sources = [root] if root is not None else [run.path for run in runs]
    about = {
        "version": __version__,
        "runs": [os.path.relpath(source, folder) for source in sources],
        "options": {name: getattr(options, name) for name in (*FIGURE_OPTIONS, *PAGE_OPTIONS)}
        | {"against": list(options.against)},
        "figures": figures_of(document),
    }
    seal_folder(folder, "report", [file.name for file in files], about)
    return folder / FILE


def options_of(about: Mapping[str, Any], folder: Path) -> ReportOptions:
    """Return the options that a sealed report was made with, its runs as absolute paths.

    The seal's paths are relative to `folder`. Raise TypeError, ValueError or KeyError if `about` is
    not from a report's seal.
    """
    values = dict(about["options"])
    against = tuple(map(str, values.pop("against", ())))
    runs = tuple((folder / str(run)).resolve() for run in about["runs"])
    drawn = {name: values.get(name, default) for name, default in PAGE_OPTIONS.items()}
    return ReportOptions(
        runs, against=against, **{name: values[name] for name in FIGURE_OPTIONS}, **drawn
    )


def figures_of(document: Document) -> list[Any]:
    """Return the document's parts that have tables, facts or notes, as JSON data (title, facts,
    tables, notes).

    Cells have printed text, error and rank only. Pictures and conversations are left out.
    """
    parts: list[Any] = as_data(document)["parts"]
    for cell in (c for part in parts for table in part["tables"] for r in table["rows"] for c in r):
        del cell[FIGURE]  # only printed text is compared: it is the same on every machine
    return [part for part in parts if part["tables"] or part["facts"] or part["notes"]]


def figure_differences(sealed: Any, computed: Any) -> list[str]:
    """Return at most 20 lines on where a report's sealed figures differ from those computed from
    the records; empty if they are equal.

    A line is `PLACE: says VALUE; the records give VALUE`.
    """
    out = []
    for location, sealed_value, computed_value in _unequal_values(sealed, computed, ""):
        out.append(
            f"{location}: says {sealed_value!r:.60}; the records give {computed_value!r:.60}"
        )
        if len(out) == MOST:
            break
    return out


def unequal_pages(document: Document, folder: Path, names: Collection[str]) -> Iterator[str]:
    """Yield a line for each line of `report.md`, `.tex`, `.html`, `.json` and `.csv` that differs
    from the document's, at most 20 a file.

    Only files in `names` are read. Drawings in the page are not compared.
    """
    for form, (_, ending) in WRITERS.items():
        name = f"report.{ending}"
        if name in names:
            written = (folder / name).read_text(encoding="utf-8", errors="replace")
            again = render_text(
                replace(document, runs=_runs_as_typed(document, written, form)), form
            )
            yield from islice(_unequal_lines(name, written, again), MOST)


def _without_drawings(page: str) -> str:
    parts, at = list[str](), 0
    for begin, end in find_enclosed(page, _SVG, _SVG_END):
        parts += (page[at : begin.start()], "<svg>")
        at = end.end()
    return "".join([*parts, page[at:]])


def _unequal_lines(name: str, written: str, again: str) -> Iterator[str]:
    """Yield the lines that differ. Drawings are left out, because another version of matplotlib
    draws differently."""
    written_lines, computed_lines = (
        _without_drawings(page).split("\n") for page in (written, again)
    )
    for number, (a, b) in enumerate(zip_longest(written_lines, computed_lines, fillvalue=""), 1):
        if a != b:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b)))  # noqa: B905
            a, b = (line[max(0, same - 20) :] for line in (a, b))
            yield f"{name}:{number}: says {a!r:.80}; the records give {b!r:.80}"


def _runs_as_typed(document: Document, page: str, form: str) -> tuple[str, ...]:
    """Return the runs' folders as written in a JSON report, if they have the same names as the
    document's: they may have been typed differently or moved since."""
    if form != "json":
        return document.runs
    try:
        typed = tuple(map(str, json.loads(page)["runs"]))
    except (ValueError, KeyError, TypeError):
        return document.runs
    same = [Path(run).resolve().name for run in typed] == [Path(run).name for run in document.runs]
    return typed if same else document.runs


def _unequal_values(sealed: Any, computed: Any, location: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(sealed, dict) and isinstance(computed, dict):
        title = str(sealed.get("title") or sealed.get("caption") or "")
        where = f"{location} > {title}" if location and title else location or title
        for key in dict.fromkeys([*sealed, *computed]):
            yield from _unequal_values(sealed.get(key), computed.get(key), where)
    elif isinstance(sealed, list) and isinstance(computed, list) and len(sealed) == len(computed):
        for number, (sealed_item, computed_item) in enumerate(
            zip(sealed, computed, strict=True), 1
        ):
            row = _row_name(sealed_item)
            yield from _unequal_values(
                sealed_item, computed_item, f"{location}, {row}" if row else f"{location}, {number}"
            )
    elif sealed != computed:
        yield location, sealed, computed


def _row_name(cells: Any) -> str:
    """Return the name of a table's row: its first cell."""
    if isinstance(cells, list) and cells and isinstance(cells[0], dict):
        return str(cells[0].get("text", "")).strip()
    return ""


WITHIN = (5, 2)
"""Number of path components of a checkpoint within its run: rounds/RECIPE/N/checkpoints/NAME, or
checkpoints/NAME."""


def misplaced_evaluations(run: Run) -> Iterator[tuple[Run, str]]:
    """Yield (evaluation, problem) for each evaluation of a run whose checkpoint was changed since,
    or whose folder was renamed.

    A change of weights or of the checkpoint's seal counts. A checkpoint that is gone is no problem;
    an evaluation with two problems comes twice.
    """
    children = run.child_runs()
    for child in children:
        for text in (_weights_mismatch(child, run), _name_mismatch(child, children)):
            if text is not None:
                yield child, text


def _weights_mismatch(child: Run, run: Run) -> str | None:
    """Return how the checkpoint differs from what was evaluated, or None. The fingerprint covers
    the weights and the checkpoint's seal, which covers every file of it."""
    fingerprint = child.manifest.policy_member.fingerprint
    folders = _evaluated_checkpoints(child, run)
    if fingerprint is None or not folders:
        return None
    fingerprints = [weights_fingerprint(folder) for folder in folders]
    if fingerprint in fingerprints:
        return None
    return (
        f"evaluated a checkpoint of fingerprint {fingerprint}, and {folders[0].name} has "
        f"{fingerprints[0]}: its weights or its seal were changed since"
    )


def _evaluated_checkpoints(child: Run, run: Run) -> list[Path]:
    """Return the folders that may hold the evaluated checkpoint. A checkpoint trained in this run
    is looked up in the run's folder as it is now. Two are returned if another run's checkpoint has
    since taken the recorded path; none if the checkpoint is gone or there was none."""
    if child.manifest.checkpoint is None:
        return []
    then = folder_of(child.manifest.checkpoint).expanduser()
    today = [run.path.joinpath(*then.parts[-size:]) for size in WITHIN]
    rounds = (Run.open(file.parent) for file in run.path.glob("rounds/*/*/run.json"))
    own = {run.manifest.id, *(round_run.manifest.id for round_run in rounds)}
    within = [folder for folder in today if Checkpoint(folder).training.get("run") in own]
    elsewhere = Checkpoint(then).training.get("run") not in (None, *own)
    folders = [folder for folder in (*within, then) if Checkpoint(folder).is_finished]
    return folders if elsewhere else folders[:1]


def _name_mismatch(child: Run, children: Sequence[Run]) -> str | None:
    """Return how the folder's name differs from the recorded one, or None. Without a record, the
    folder is wrong only if it has the name of another evaluation's checkpoint."""
    name, made_as = child.path.name, child.manifest.extra.get(EVALUATION)
    if made_as is None:
        others = {_default_name(sibling) for sibling in children if sibling is not child}
        if _default_name(child) in (None, name) or name not in others:
            return None
        made_as = _default_name(child)
    return None if name == made_as else f"was made as {made_as}; its folder is named {name}"


def _default_name(child: Run) -> str | None:
    checkpoint = child.manifest.checkpoint
    return None if checkpoint is None else folder_of(checkpoint).name
