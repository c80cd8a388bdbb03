"""Files of rows by their content: each kind, the splits of their names, and hostile ones."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from convbench.errors import DataError
from convbench.source import File, open_source

ROWS = [{"q": "x, y", "n": 1}, {"q": "ü", "n": 2}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
TABLE = 'q,n\n"x, y",1\nü,2\n'
BAD = "not JSON in UTF-8"
CELLS = [{key: str(value) for key, value in row.items()} for row in ROWS]


def rows(place: Path) -> list[Any]:
    """The values of a source; for one that cannot be read, why."""
    files, _ = open_source(str(place))
    values = [value for file in files for _, value in file.rows()]
    return [str(value) if isinstance(value, DataError) else value for value in values]


def zstd(data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def parquet() -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), sink)
    return sink.getvalue().to_pybytes()


Content = bytes | Callable[[], bytes]
"""What stands in a file; parquet is written when a test needs it, since that imports pandas."""


def write_file(path: Path, content: Content) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content())


LONG = 1234567890123456789
KINDS: dict[str, tuple[Content, list[Any]]] = {
    "a.jsonl": (LINES, ROWS),
    "marked.jsonl": (b"\xef\xbb\xbf" + LINES, ROWS),
    "blank.jsonl": (LINES.replace(b"\n", b"\n\n"), ROWS),
    "named.txt": (LINES, ROWS),
    "a.jsonl.gz": (gzip.compress(LINES), ROWS),
    "a.jsonl.zst": (zstd(LINES), ROWS),
    "list.json": (json.dumps(ROWS, indent=1).encode(), [ROWS]),
    "spaced.json": (b" [\n1\n]", [[1]]),
    "object.json": (json.dumps({"rows": ROWS}, indent=1).encode(), [{"rows": ROWS}]),
    "a.csv": (TABLE.encode(), CELLS),
    "a.csv.gz": (gzip.compress(TABLE.encode()), CELLS),
    "a.tsv": ("q\tn\nx, y\t1\nü\t2\n".encode(), CELLS),
    "semicolons.csv": (b"q;n\nx;1\n;\n;2\n", [{"q": "x", "n": "1"}, {"q": "", "n": "2"}]),
    "parquet": (parquet, ROWS),
    "torn.jsonl": (LINES + b'{"q": \n' + LINES[:17], [*ROWS, BAD, BAD]),
    "latin.jsonl": (LINES + b'{"q": "\xfc"}', [*ROWS, BAD]),
    "latin.csv": (b"q\n\xfc\nx\n", ["more cells than columns, or not UTF-8", {"q": "x"}]),
    "wide.csv": (b"q\na,b\nx\n", ["more cells than columns, or not UTF-8", {"q": "x"}]),
    "long.jsonl": (b'{"id": 1234567890123456789, "n": NaN}', [{"id": LONG, "n": None}]),
    "half.jsonl": (b'{"q": "\\ud83d", "n": NaN}\n', [{"q": "\ufffd", "n": None}]),
    "deep.jsonl": (b"[" * 100_000 + b"]" * 100_000, [BAD]),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_each_kind_of_file(tmp_path: Path, name: str) -> None:
    content, expected = KINDS[name]
    write_file(tmp_path / name, content)
    assert rows(tmp_path / name) == expected


def write_archive(path: Path, **entries: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data if isinstance(data, bytes) else json.dumps(data))
    return path


def test_rows_of_an_archive_are_its_samples(tmp_path: Path) -> None:
    entries = {"header.json": {"eval": {}}, "samples/a/b.json": {"id": 1}, "samples/c.json": b"{",
               "../x.json": {}, "samples/d.json": {"id": 2}}  # fmt: skip
    found = rows(write_archive(tmp_path / "a.eval", **entries))
    head = {"header": {"eval": {}}}
    assert found == [head | {"sample": {"id": 1}}, BAD, head | {"sample": {"id": 2}}]


def test_rows_of_a_damaged_archive_are_counted(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", **{"samples/a.json": {"id": "x" * 900}})
    data = bytearray(path.read_bytes())
    data[50:60] = bytes(10)
    path.write_bytes(data)
    (found,) = rows(path)
    assert found.startswith("cannot be unpacked")


FOLDER = {
    "train-00000-of-00002.jsonl": "train", "train-00001-of-00002.jsonl": "train",
    "test_prefs.jsonl": "test_prefs", "data/dev.jsonl.gz": "dev", "sessions.jsonl": None,
}  # fmt: skip


def test_open_source_of_a_folder_has_the_splits_of_its_names(tmp_path: Path) -> None:
    for name in (*FOLDER, "README.md", ".hidden/x.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(LINES) if name.endswith("gz") else LINES)
    files, _ = open_source(str(tmp_path))
    assert {str(f.path.relative_to(tmp_path)): f.split for f in files} == FOLDER
    files, _ = open_source(str(tmp_path / "*.jsonl"))
    assert len(files) == 4
    for name, split in {"val.jsonl": "val", "test_logs.jsonl": None}.items():
        (tmp_path / name).write_bytes(LINES)
        assert open_source(str(tmp_path / name))[0][0].split == split


def test_open_source_s_digest_follows_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(LINES)
    _, first = open_source(str(file))
    file.write_bytes(LINES + LINES)
    assert first.startswith("sha256:")
    assert open_source(str(file))[1] != first


def test_rows_of_parquet_have_marks_for_media(tmp_path: Path) -> None:
    """Broken bytes do no harm; columns that are not asked for are null."""
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    column = pyarrow.array([{"bytes": b"not an image", "path": None}, None], type=kind)
    table = pyarrow.table({"image": column, "question": ["a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    file = File("x", tmp_path / "train.parquet")
    assert [row["image"] for _, row in file.rows()] == ["[media]", None]
    assert [row for _, row in file.rows(["question"])] == [
        {"image": None, "question": "a"}, {"image": None, "question": "b"},
    ]  # fmt: skip


UNREADABLE: dict[str, tuple[Content, str]] = {
    "x.parquet": (b"PAR1" + bytes(100) + b"PAR1", "cannot be read"),
    "cut.parquet": (lambda: parquet()[:-40] + bytes(40), "cannot be read"),
    "x.gz": (b"\x1f\x8b" + bytes(30), "cannot be read"),
    "cut.gz": (gzip.compress(LINES)[:-12], "cannot be read"),
    "x.zst": (b"\x28\xb5\x2f\xfd" + bytes(9), "cannot be read"),
    "x.eval": (b"PK\x03\x04" + bytes(9), "cannot be read: File is not a zip"),
    "twice.csv": (b"q,q\n1,2\n", "found two columns 'q'"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_rows_of_a_file_that_cannot_be_read_are_one_line(tmp_path: Path, name: str) -> None:
    content, words = UNREADABLE[name]
    write_file(tmp_path / name, content)
    with pytest.raises(DataError, match=words) as caught:
        rows(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_open_source_of_nothing_is_one_line(tmp_path: Path) -> None:
    for place in (tmp_path / "absent", tmp_path, tmp_path / "*.jsonl"):
        with pytest.raises(DataError, match="found no such file or folder"):
            open_source(str(place))
    with pytest.raises(DataError, match="expected hf://OWNER/NAME"):
        open_source("hf://name")
