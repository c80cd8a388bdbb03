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
from convbench.formats.log import IRREGULAR, Item, LeftOut, LogConversation
from convbench.formats.values import as_text, at
from convbench.source import File

PEEKED = 50
"""Values at the start of a file by which its format is recognised."""
REASONS = 8
"""Most reasons for leaving out that are told."""


@dataclass
class ImportPlan:
    """What an import is to do, beside where from and where to."""

    format: str | None = None
    """Name of a reader; without it the first that recognises the file."""
    policy: str | None = None
    """Who is learnt, where several spoke: a name, a role or a model."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Our name by the rows' own, `scores.overall` reaching into an object."""
    rewards: str | None = None
    key: str | None = None
    """File of rewards, and the column of the id in both."""
    split_by: Literal["time", "group"] | None = None
    fail_on: str | None = None
    """Most rows that may be left out: a number, or a percentage like `5%`."""
    pii: bool = False
    """Whether addresses, phones, cards and home folders are replaced."""


@dataclass
class Seen:
    """Counts over all records, updated while they are read: files by format, what was kept in
    another form by kind, records without a conversation by reason, each with its first place."""

    formats: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)

    def leave_out(self, where: str, reason: str) -> None:
        """Count a record that is left out."""
        self.left_out[reason] += 1
        self.places.setdefault(reason, where)

    def left_out_lines(self) -> list[str]:
        """Return a line for each reason: how many, why, and the first place."""
        listed = self.left_out.most_common(REASONS)
        lines = [f"{n} left out: {why}; first: {self.places[why]}" for why, n in listed]
        more = self.left_out.total() - sum(count for _, count in listed)
        return lines + ([f"{more} left out for other reasons"] if more else [])


def read_logs(files: list[File], plan: ImportPlan, seen: Seen) -> Iterator[LogConversation]:
    """Yield the conversations of all files in order; what gives none is counted in `seen`."""
    for file in files:
        try:
            for item in without_copies(_read_file(file, plan, seen), seen.notes):
                if isinstance(item, LeftOut):
                    seen.leave_out(item.where, str(item))
                else:
                    item.split = item.split or file.split
                    yield item
        except DataError as error:
            if len(files) == 1:
                raise
            seen.leave_out(file.name, str(error).replace(f"{file.name}: ", ""))


def _read_file(file: File, plan: ImportPlan, seen: Seen) -> Iterator[Item]:
    rows = file.rows()
    first = list(islice(rows, PEEKED))
    reader = _choose_reader(first, plan.format)
    if len(first) == 1 and not reader.recognises(first[0][1]):
        first = list(rows_inside(*first[0]))  # a list of rows, or an object that holds one
        reader = _choose_reader(first[:PEEKED], plan.format)
    name = reader.__name__.rpartition(".")[2]
    seen.formats[name] += 1
    whole: list[Any] | None = [] if getattr(reader, "whole_file", False) else None
    for where, value in chain(first, rows, [(file.name, whole)] if whole is not None else []):
        fits = value is whole or isinstance(value, dict) or reader.recognises(value)
        if fits and whole is not None and value is not whole:
            whole.append(value)
            continue
        if not fits and not isinstance(value, DataError):
            value = DataError(f"found {type(value).__name__}; expected an object")
        for item in _read_record(reader, value, where, plan.names if name == "rows" else {}):
            item.where = where
            yield item


def _choose_reader(rows: list[tuple[str, Any]], format: str | None) -> ModuleType:
    """Return the reader of this name, else the first that recognises a value, `rows` last."""
    names = sorted(module.name for module in pkgutil.iter_modules(readers.__path__))
    if format is not None and format not in names:
        raise DataError(f"--format {format}: expected one of {', '.join(names)}")
    known = [format] if format else sorted(names, key=lambda name: name == "rows")
    modules = [importlib.import_module(f"{readers.__name__}.{name}") for name in known]
    found = (m for m in modules if any(m.recognises(value) for _, value in rows))
    return next(found, modules[-1])


def _read_record(
    reader: ModuleType, value: Any, where: str, names: Mapping[str, str]
) -> Iterator[Item]:
    """Yield what a reader makes of a record, with text where a log should have text. Whatever a
    hostile record makes it raise is counted: no shape of data is a fault of the program."""
    try:
        if isinstance(value, DataError):
            raise LeftOut(str(value))
        for item in reader.read(_renamed(value, names), where):
            for name in ("id", "task", "group", "split", "parent"):
                if isinstance(item, LogConversation):
                    setattr(item, name, as_text(getattr(item, name)) or None)
            for message in getattr(item, "messages", ()):
                message.text, message.reasoning = map(as_text, (message.text, message.reasoning))
            yield item
    except LeftOut as reason:
        yield reason
    except IRREGULAR as error:
        name = reader.__name__.rpartition(".")[2]
        yield LeftOut(f"not as {name} writes it ({type(error).__name__})")


def _renamed(row: Any, names: Mapping[str, str]) -> Any:
    """Return a row with its fields under our names. Raise LeftOut without the column of one."""
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
    objects; else the value."""
    rows = value
    while isinstance(rows, dict):
        lists = [v for v in rows.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        inner: list[Any] = lists or [v for v in rows.values() if isinstance(v, dict)]
        if any("role" in v[0] or "from" in v[0] for v in lists) or not (lists or len(inner) == 1):
            break
        rows = max(inner, key=len)
    if isinstance(rows, list):
        yield from ((f"{place}:{number}", row) for number, row in enumerate(rows, 1))
    else:
        yield place, value
