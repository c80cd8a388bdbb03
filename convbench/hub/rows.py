"""Raw rows of a question set, from the Hub or from a local file, in one order on any machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from convbench.errors import DataError, HubError, SpecError
from convbench.hub.errors import translating
from convbench.hub.files import read_files
from convbench.hub.probe import ask, offline
from convbench.hub.quiet import quietly
from convbench.hub.tables import Part, Rows, arrow
from convbench.schema.task import Source

USUAL = ("train", "validation", "dev", "test")
"""Splits that come first, in this order; others follow by name."""
LOCAL = "--set task.source.hub=null --set task.source.file=PATH"
"""How a local copy takes the place of a Hub repository."""
COMMIT = re.compile(r"[0-9a-f]{40}")


def load_rows(source: Source) -> tuple[list[dict[str, Any]], str]:
    """Return (all rows, revision) of a source on the Hub or in a file; see `open_rows`."""
    rows, revision = open_rows(source)
    return list(rows), revision


def open_rows(source: Source) -> tuple[Rows, str]:
    """Return (rows, revision) of a source on the Hub or in a file, read when they are iterated.

    Each row is a dict of its columns and `_split`, the split it came from. The order is: splits
    train, validation, dev, test, then others by name; rows as they stand in each. An image, audio
    or video is not decoded: it stands as `[media]`, or None. `revision` is the commit on the Hub,
    or `sha256:…` of the local files.

    Raises HubError (unreachable, refused, no such repository, configuration or split) or
    DataError (no such file, unreadable).
    """
    if source.file is not None:
        parts, revision = read_files(source.file)
        return pooled(parts, source.splits, source.file, DataError), revision
    if source.hub is None:
        raise SpecError("source: found neither hub nor file; rows made by a function are not read")
    return _from_hub(source.hub, source)


def _from_hub(repo: str, source: Source) -> tuple[Rows, str]:
    what = f"dataset {repo}"
    with quietly(), translating(what, way_out=f", or use a local copy: {LOCAL}"):
        import datasets

        found = ask(repo, source.revision)
        try:
            with offline(found.unreachable is not None):
                splits = datasets.load_dataset(repo, name=source.config, revision=source.revision)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            cause = found.refused or found.unreachable
            if cause is None and isinstance(error, ValueError):  # no such configuration
                raise HubError(f"{what}: {_value_line(error)}") from error
            if cause is None:
                raise
            raise cause from error
        parts = {
            str(split): partial(arrow, f"{what}, {split}", table.data.table)
            for split, table in splits.items()
        }
        revision = _loaded_commit(splits) or found.commit or "unknown"
    if COMMIT.fullmatch(source.revision or "") and revision != source.revision:
        raise HubError(
            f"{what}: the Hub cannot be reached, and the cache holds commit {revision}; expected "
            f"{source.revision}. Go online once, or take what is there: --set "
            f"task.source.revision={revision}"
        )
    return pooled(parts, source.splits, what, HubError), revision


def _loaded_commit(splits: Any) -> str | None:
    """Return the commit that was loaded: it names the folder in the cache."""
    for dataset in splits.values():
        for file in dataset.cache_files:
            if COMMIT.fullmatch(Path(file["filename"]).parent.name):
                return Path(file["filename"]).parent.name
    return None


def _value_line(error: ValueError) -> str:
    """One line for a ValueError of load_dataset: a missing configuration, mostly."""
    text = " ".join(str(error).split()).partition(" Example of usage")[0]
    return f"{text[:400].rstrip('.')}; choose one: --set task.source.config=NAME"


def pooled(
    parts: Mapping[str, Part],
    wanted: Iterable[str],
    what: str,
    error: type[HubError] | type[DataError],
) -> Rows:
    """Return the rows of the wanted splits (all where none is named), each with `_split`."""
    names = sorted(parts, key=_order)
    missing = [name for name in wanted if name not in parts]
    if missing:
        raise error(
            f"{what}: found no split {missing[0]!r}; there is: {', '.join(names)}; "
            f"choose among them, e.g. --set task.source.splits=[{names[0] if names else 'train'}]"
        )
    chosen = [name for name in names if name in set(wanted) or not tuple(wanted)]
    return Rows((name, parts[name]) for name in chosen)


def _order(split: str) -> tuple[int, str]:
    return (USUAL.index(split) if split in USUAL else len(USUAL), split)
