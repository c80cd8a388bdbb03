"""Read `run.json`: a folder of this version's format, or a clear refusal."""

from __future__ import annotations

from typing import Any

from convbench.errors import RunError
from convbench.schema import RunManifest
from convbench.schema.run import FORMAT
from convbench.store.shape import parse_object, parse_record


def parse_manifest(where: str, data: bytes) -> RunManifest:
    """Return the manifest in the bytes of a `run.json`.

    Raises RunError beginning with `where` for another format and for an invalid manifest.
    """
    record = parse_object(where, data)
    number = record.get("format")
    if type(number) is not int or number < 1:
        raise RunError(f"{where}: format: found {number!r:.60}; expected {FORMAT}")
    if number > FORMAT:
        raise RunError(_newer_text(where, number, record.get("version")))
    return parse_record(where, data, RunManifest)


def _newer_text(where: str, number: int, version: Any) -> str:
    writer = f"convbench {version!r:.40}" if isinstance(version, str) else "a newer convbench"
    return (
        f"{where}: format: found {number}, written by {writer}; this version reads format "
        f"{FORMAT}; update convbench (pip install -U convbench)"
    )
