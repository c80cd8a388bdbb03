"""Files of a dataset repository, made from a local folder or from rows."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .card import readme_for

DATA_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
Rows = Mapping[str, Mapping[str, list[dict[str, Any]]]]
"""Config -> split -> rows."""


def folder_files(folder: Path, license_id: str | None = None) -> dict[str, bytes]:
    """All files of `folder`, and a README listing its `<config>/<split>.parquet` if it has none.

    Raises FileNotFoundError for a folder without files.
    """
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    if not files:
        raise FileNotFoundError(f"no files in {folder}")
    files.setdefault("README.md", readme_for(_configs(files), license_id).encode())
    return files


def row_files(rows: Rows, license_id: str | None = None) -> dict[str, bytes]:
    """`rows` as `<config>/<split>.parquet`, and a README listing them."""
    files = {
        f"{config}/{split}.parquet": _parquet(table)
        for config, splits in rows.items()
        for split, table in splits.items()
    }
    files["README.md"] = readme_for(_configs(files), license_id).encode()
    return files


def _configs(files: Mapping[str, bytes]) -> dict[str, dict[str, list[str]]]:
    configs: dict[str, dict[str, list[str]]] = {}
    for path in sorted(files):
        config, _, name = path.rpartition("/")
        split, dot, suffix = name.partition(".")
        if config and dot + suffix in DATA_SUFFIXES:
            configs.setdefault(config, {}).setdefault(split, []).append(path)
    return configs


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()
