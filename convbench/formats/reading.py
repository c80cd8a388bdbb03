"""From files to conversations: which reader a file is for, and what gives no conversation."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from types import ModuleType
from typing import Any, Literal

from convbench.errors import DataError
from convbench.formats import readers
from convbench.formats.fold import without_copies
from convbench.formats.log import Items, LeftOut, LogConversation, each
from convbench.formats.values import as_text, at
from convbench.source import File

PEEKED = 50  # values at the start of a file by which its format is recognised


@dataclass
class ImportPlan:
    """What an import is to do, beside where from and where to."""

    format: str | None = None  # name of a reader; without it the first that recognises a file
    policy: str | None = None  # who is learnt, where several spoke: a name, a role or a model
    names: Mapping[str, str] = field(default_factory=dict)  # fields by our names: `scores.overall`
    rewards: str | None = None  # file of rewards
    key: str | None = None  # column of the id in both files
    split_by: Literal["time", "group"] | None = None
    fail_on: str | None = None  # most rows that may be left out: a number, or one like `5%`
    pii: bool = False  # whether addresses, phones, cards and home folders are replaced


def read_logs(
    files: list[File], plan: ImportPlan, formats: Counter[str], notes: Counter[str]
) -> Items:
    """Yield the conversations of all files in order, and what gives none. Count files by format,
    and in `notes` what was dropped. Raise DataError for an unknown format, and for the only file if
    it cannot be read."""
    for file in files:
        try:
            for item in without_copies(_read_file(file, plan, formats), notes):
                if isinstance(item, LogConversation):
                    item.split = item.split or file.split
                yield item
        except DataError as error:
            if len(files) == 1:
                raise
            yield LeftOut(str(error).replace(f"{file.name}: ", ""), file.name)


def _read_file(file: File, plan: ImportPlan, formats: Counter[str]) -> Items:
    rows = file.rows()
    first = list(islice(rows, PEEKED))
    reader = _choose_reader(first, plan.format)
    if len(first) == 1 and not reader.recognises(first[0][1]):
        first = list(rows_inside(*first[0]))  # a list of rows, or an object that holds one
        reader = _choose_reader(first[:PEEKED], plan.format)
    name = reader.__name__.rpartition(".")[2]
    formats[name] += 1
    whole: list[Any] = []
    for where, value in chain(first, rows):
        if isinstance(value, DataError):
            yield LeftOut(str(value), where)
        elif not isinstance(value, dict) and not reader.recognises(value):
            yield LeftOut(f"found {type(value).__name__}; expected an object", where)
        elif getattr(reader, "whole_file", False):
            whole.append(value)
        else:
            yield from _read_record(reader, value, where, plan.names if name == "rows" else {})
    if whole:
        yield from _read_record(reader, whole, file.name, {})


def _choose_reader(rows: list[tuple[str, Any]], format: str | None) -> ModuleType:
    names = sorted(module.name for module in pkgutil.iter_modules(readers.__path__))
    if format is not None and format not in names:
        raise DataError(f"--format {format}: expected one of {', '.join(names)}")
    known = [format] if format else sorted(names, key=lambda name: name == "rows")
    modules = [importlib.import_module(f"{readers.__name__}.{name}") for name in known]
    found = (m for m in modules if any(m.recognises(value) for _, value in rows))
    return next(found, modules[-1])


def _read_record(reader: ModuleType, value: Any, where: str, names: Mapping[str, str]) -> Items:
    for item in each([value], lambda value: reader.read(_renamed(value, names), where)):
        item.where = where
        if isinstance(item, LogConversation):
            for name in ("id", "task", "group", "split", "parent"):
                setattr(item, name, as_text(getattr(item, name)) or None)
            model = None if any(m.model for m in item.messages) else item.metadata.get("model")
            for message in item.messages:
                message.text, message.reasoning = map(as_text, (message.text, message.reasoning))
                if message.role == "assistant":
                    message.model = message.model or as_text(model)
        yield item


def _renamed(row: Any, names: Mapping[str, str]) -> Any:
    fields = dict(row) if names else row
    for ours, theirs in names.items():
        column, *path = theirs.split(".")
        if column not in row:
            raise LeftOut(f"--map {ours}={theirs}: found no {column!r}")
        fields.pop(theirs, None)
        fields[ours] = at(row[column], *path)
    return fields


def rows_inside(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows in a file's one value: the items of a list, or of an object's longest list of
    objects; the chats that an object holds by name; else the value."""
    rows = value
    while isinstance(rows, dict):
        lists = [v for v in rows.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        inner = {name: v for name, v in rows.items() if isinstance(v, dict)}
        if any("role" in v[0] or "from" in v[0] for v in lists):
            break
        if not lists and inner and all("messages" in chat for chat in inner.values()):
            rows = [{"id": name, **chat} for name, chat in inner.items()]
        elif lists or len(inner) == 1:
            rows = max(lists or inner.values(), key=len)
        else:
            break
    if isinstance(rows, list):
        yield from ((f"{place}:{number}", row) for number, row in enumerate(rows, 1))
    else:
        yield place, value
