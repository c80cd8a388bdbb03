"""Small excerpts of our own in the shape of public sets, and the real rows where they lie.

The excerpts hold the features that tests look at (three options, numeric labels, unicode, pictures,
nulls, hidden tests), in words of our own: the sets themselves have licences of their own. Tests
that take `hub_rows` (see tests/conftest.py) run on the excerpts always, and on the real rows where
a folder `shared/` lies beside the checkout.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

EXCERPTS = Path(__file__).resolve().parents[1] / "excerpts"
SHARED = Path(__file__).resolve().parents[3] / "shared"
T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """Where rows come from: an excerpt of our own, or the real set."""

    real: bool
    place: Path

    def pick(self, excerpt: T, real: T) -> T:
        """The figure that is known for this source."""
        return real if self.real else excerpt


def sources(there: str) -> list[bool]:
    """For `params`: False, the excerpt, and True where the real thing is at `shared/{there}`."""
    return [False, True] if (SHARED / there).exists() else [False]


def named(real: bool) -> str:
    """For `ids`."""
    return "real" if real else "excerpt"


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of an excerpt; a picture's bytes are written in base 64."""
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("image"):
            row["image"]["bytes"] = base64.b64decode(row["image"]["bytes"])
        yield row


def written(excerpts: Path, folder: Path) -> Path:
    """Write every excerpt below a folder as parquet with the types the Hub's copies have."""
    for file in excerpts.rglob("*.jsonl"):
        target = (folder / file.relative_to(excerpts)).with_suffix(".parquet")
        target.parent.mkdir(parents=True, exist_ok=True)
        _parquet(list(rows(file)), target)
    return folder


def _parquet(found: list[dict[str, Any]], target: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    narrow: Mapping[str, Any] = {
        "image": pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        "answers": pa.struct([("text", pa.list_(pa.string())),
                              ("answer_start", pa.list_(pa.int32()))]),
        "turn_idx": pa.int32(),
    }  # fmt: skip
    table = pa.Table.from_pylist(found)
    kinds = [(name, narrow.get(name, table.schema.field(name).type)) for name in table.column_names]
    if "image" in table.column_names:  # ScienceQA keeps a gold option as one byte
        kinds = [(name, pa.int8() if name == "answer" else kind) for name, kind in kinds]
    pq.write_table(pa.Table.from_pylist(found, schema=pa.schema(kinds)), target)
