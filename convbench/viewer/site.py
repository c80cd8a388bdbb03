"""Write the viewer as files for any web server: the same page over JSON files."""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson

from convbench.errors import RunError
from convbench.store.jsonl import disk_error
from convbench.viewer.figures import base_comparisons, list_rasters, overview_figures
from convbench.viewer.filters import SHOWN, finite_row, reward_lists
from convbench.viewer.index import ViewIndex
from convbench.viewer.server import ASSETS, HOME
from convbench.viewer.talk import chat_messages, talks_json, turn_prompts

ROWS, TALKS = 5000, 100
"""Number of rows, and of conversations, in one file."""
BASES = 12
"""Largest number of runs with which each of them can be selected as Base."""
MARK = "convbench-view.json"
"""Written last: a folder with this file is a complete site of ours."""
BEGUN = ".convbench-view"
"""Written first and removed at the end: a folder with this file is an unfinished site."""
FROM_FILES = 'data-source="files"'
LOCAL = ("path", "parent")
"""Facts of a run that reveal paths of this machine; they are left out."""

T = TypeVar("T")


def write_site(
    index: ViewIndex, folder: Path, say: Callable[[str], None] = lambda text: None
) -> int:
    """Write the page, its data and images into a new or empty folder, or in place of an earlier
    site; return the number of files.

    `say` gets a line on progress. Raise RunError if the folder holds anything else, or cannot be
    written.
    """
    folder = folder.resolve()  # a link stays one
    ours = any((folder / mark).is_file() for mark in (MARK, BEGUN))
    if not ours and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: found other files; expected an empty or a new folder")
    try:
        _clear_folder(folder)
        shutil.copytree(ASSETS, folder / "assets")
        page = (folder / "assets" / "index.html").read_text()
        (folder / "index.html").write_text(page.replace(HOME, FROM_FILES))
        (folder / "assets" / "index.html").unlink()
        for number, (name, data) in enumerate(_data_files(index)):
            path = folder / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS, default=str))
            if number % 100 == 99:
                say(f"{number + 1} files …")
        left = _copy_images(index, folder)
        if left:
            say(f"{left} file{'s' if left > 1 else ''} omitted: not PNG, JPEG, WebP or GIF")
        (folder / MARK).write_bytes(orjson.dumps({"conversations": index.total}))
        (folder / BEGUN).unlink()
    except OSError as error:
        raise disk_error(folder, error) from None
    return sum(1 for path in folder.rglob("*") if path.is_file())


def _clear_folder(folder: Path) -> None:
    """Empty a folder, and mark it as a site that is being written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BEGUN).touch()
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        elif item.name != BEGUN:
            item.unlink()


def _data_files(index: ViewIndex) -> Iterator[tuple[str, Any]]:
    """Yield (name, JSON value) of every data file."""
    figures = overview_figures(index, drawings=False)
    figures["runs"] = [{k: v for k, v in run.items() if k not in LOCAL} for run in figures["runs"]]
    yield (
        "versus.json",
        {"": base_comparisons(index)} | {m: base_comparisons(index, m) for m in _base_ids(index)},
    )
    sizes = {"total": index.total, "rows": ROWS, "talks": TALKS}
    yield "overview.json", {**figures, "rubrics": [], "labels": [], "sizes": sizes}
    for start in range(0, index.total, ROWS):
        span = [start, start + ROWS]
        where = "WHERE n >= ? AND n < ? ORDER BY n"
        shown = f"SELECT {SHOWN}{reward_lists(index)} FROM conversations {where}"
        rows = [finite_row(row) for row in index.query_rows(shown, span)]
        names = list(rows[0])
        yield f"rows/{start // ROWS}.json", {name: [row[name] for row in rows] for name in names}
        texts = index.query_rows(
            f"SELECT text FROM raw.texts JOIN conversations USING (position) {where}", span
        )
        yield f"text/{start // ROWS}.json", [row["text"] for row in texts]
    names = [
        row["conversation_id"]
        for row in index.query_rows("SELECT conversation_id FROM conversations ORDER BY n")
    ]
    for number, some in enumerate(_iter_batches(names, TALKS)):
        yield f"talks/{number}.json", _portable_talks(index, some)
        yield f"prompts/{number}.json", [turn_prompts(index, name) for name in some]
        yield f"messages/{number}.json", [chat_messages(index, name) for name in some]


def _base_ids(index: ViewIndex) -> list[str]:
    """Return the ids of the runs that can be selected as Base: all of 2 to BASES runs, or none."""
    ids = [run.manifest.id for run in index.runs]
    return ids if 1 < len(ids) <= BASES else []


def _portable_talks(index: ViewIndex, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return conversations without the path of their run on this machine."""
    conversations = talks_json(index, names)
    return [
        {k: v for k, v in conversation.items() if k != "run"} | {"labels": []}
        for conversation in conversations
    ]


def _iter_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _copy_images(index: ViewIndex, folder: Path) -> int:
    """Copy the images of conversations and the pictures of reports, but nothing that a browser
    would run, since the site is served under its owner's name. Return the number of files in
    `media/` that were left out."""
    left = 0
    for number, run in enumerate(index.runs):
        for kind, source in (("media", run.media_folder), ("reports", run.reports_folder)):
            pictures = list(list_rasters(source))
            for path in pictures:
                target = folder / kind / str(number)
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / path.name)
            if kind == "media" and source.is_dir():
                left += sum(1 for _ in source.iterdir()) - len(pictures)
    return left
