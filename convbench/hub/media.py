"""Arrow tables to rows, with images and sounds left where they are."""

from __future__ import annotations

from typing import Any

MEDIA = "[media]"
"""Stands for an image, audio or video that is there but not loaded."""


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Return a pyarrow table as rows; media columns tell only whether something is there."""
    import pyarrow
    import pyarrow.compute

    for index, field in enumerate(table.schema):
        if is_media(field.type):
            there = table.column(index).is_valid()
            flags = pyarrow.compute.if_else(there, MEDIA, None)
            table = table.set_column(index, field.name, flags)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def is_media(kind: Any) -> bool:
    """Whether a column's Arrow type is how `datasets` stores media: {bytes, path}."""
    import pyarrow

    if not pyarrow.types.is_struct(kind):
        return False
    names = {kind.field(index).name for index in range(kind.num_fields)}
    return names == {"bytes", "path"}
