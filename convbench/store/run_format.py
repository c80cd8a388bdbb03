"""Read `run.json` of this version's format or of an older one.

A change of what a run folder holds raises `schema.run.FORMAT` by one and adds a step to `UPGRADES`.
Nothing on disk is rewritten: seals cover the bytes of `run.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from convbench.errors import RunError
from convbench.schema import RunManifest
from convbench.schema.run import FORMAT
from convbench.store.shape import DEEPEST, exceeds_depth, parse_object, parse_record

Record = dict[str, Any]


def _from_0(record: Record) -> Record:
    """Add the number, which folders of format 0 lack."""
    return record | {"format": 1}


UPGRADES: tuple[Callable[[Record], Record], ...] = (_from_0,)
"""The step from each format to the next, the first from format 0."""


def parse_manifest(where: str, data: bytes) -> RunManifest:
    """Return the manifest in the bytes of a `run.json`, upgraded to this version's format.

    Raises RunError beginning with `where` for a newer format and for an invalid manifest.
    """
    record = parse_object(where, data)
    number = record.get("format", 0)
    if type(number) is not int or number < 0:
        raise RunError(f"{where}: format: found {number!r:.60}; expected a number of at least 0")
    if number > FORMAT:
        raise RunError(_newer_text(where, number, record.get("version")))
    if number == FORMAT:
        return parse_record(where, data, RunManifest)
    if exceeds_depth(record, DEEPEST):
        raise RunError(f"{where}: found values nested more than {DEEPEST} deep")
    for upgrade in UPGRADES[number:]:
        record = upgrade(record)
    return parse_record(where, orjson.dumps(record), RunManifest)


def _newer_text(where: str, number: int, version: Any) -> str:
    writer = f"convbench {version!r:.40}" if isinstance(version, str) else "a newer convbench"
    return (
        f"{where}: format: found {number}, written by {writer}; this version reads formats "
        f"up to {FORMAT}; update convbench (pip install -U convbench)"
    )
