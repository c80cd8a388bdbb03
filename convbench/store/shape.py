"""Read and validate small files and records of a run.

Files of a run may come from strangers, from a crash or from an editor. Whatever is wrong in one
raises a RunError that names file, line and field, and no other error.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from convbench.errors import RunError
from convbench.schema.base import json_levels
from convbench.util.regular import open_to_read

Record = TypeVar("Record", bound=BaseModel)

LARGEST = 16 << 20
"""Largest number of bytes of a small file: a manifest, a judge, a note."""
LONGEST = 256 << 20
"""Largest number of bytes of one record."""
DEEPEST = 64
"""Deepest nesting in a small file."""


def read_bytes(path: Path) -> bytes:
    """Return the contents of a small file as bytes.

    Raises RunError if it is missing, has more than 16 MiB, or is no regular file.
    """
    try:
        with open_to_read(path) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise RunError(f"{path}: found more than {LARGEST:,} bytes; expected fewer")
    return data


def is_file(path: Path) -> bool:
    """Return True if the path is a file or a link to one; False also for a name that no file can
    have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_model(path: Path, model: type[Record]) -> Record:
    """Return the record in a JSON file, validated.

    Raises RunError if it is missing or does not match `model`.
    """
    return parse_record(str(path), read_bytes(path), model)


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty if there is no file.

    Raises RunError for a file that is no JSON, holds another value, has more than 16 MiB or is
    nested more than 64 deep.
    """
    record = parse_object(str(path), read_bytes(path)) if is_file(path) else {}
    if exceeds_depth(record, DEEPEST):
        raise RunError(f"{path}: found values nested more than {DEEPEST} deep")
    return record


def read_text_field(path: Path, name: str) -> str:
    """Return a text field of the object in a JSON file, which may be empty.

    Raises RunError if the file or the field is missing, or the field is no text.
    """
    text = read_object(path).get(name)
    if not isinstance(text, str):
        raise RunError(f"{path}: {name}: found {text!r:.60}; expected text")
    return text


def exceeds_depth(value: Any, most: int) -> bool:
    """Return True if a JSON value has more than `most` levels, its own included. Not recursive."""
    return any(depth == most for depth, _ in enumerate(json_levels(value)))


def parse_record(where: str, data: bytes, model: type[Record]) -> Record:
    """Return the record in JSON bytes, validated by `model`.

    Raises RunError beginning with `where` that names the first invalid field.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        way = ".".join(f"{part!s:.40}" for part in first["loc"][:8]) or "(top)"
        raise RunError(f"{where}: {way}: {first['msg']:.200}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{where}: found values nested too deeply") from None


def assert_single_keys(
    where: str, record: BaseModel, names: tuple[str, ...], expected_hash: int
) -> None:
    """Raise RunError if a JSON line holds one of these keys twice. `expected_hash` is the hash of
    their first values."""
    if hash(tuple(getattr(record, name) for name in names)) != expected_hash:
        raise RunError(f"{where}: found two values of {' or '.join(names)}; expected one")


def parse_object(where: str, data: bytes, texts: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON object in these bytes. Raises RunError beginning with `where` if they hold
    none, or if one of the fields `texts` is missing or no text."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RunError(f"{where}: damaged, not JSON: {error}") from None
    if not isinstance(record, dict):
        raise RunError(f"{where}: found {type(record).__name__}; expected an object")
    for name in texts:
        if not isinstance(record.get(name), str):
            raise RunError(f"{where}: {name}: found {record.get(name)!r:.60}; expected text")
    return record
