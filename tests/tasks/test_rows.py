"""Question files from strangers: what is read of them, and rows of odd shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from convbench.errors import DataError
from convbench.tasks.load import load_examples
from tests.helpers.question_files import task


def repeated(text: str, count: int) -> Any:
    """A column that says one text many times, as a dictionary of one."""
    places = pyarrow.array([0]).take(pyarrow.array([0] * count)).cast(pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([text]))


def table(file: Path, **columns: Any) -> Path:
    count = len(next(iter(columns.values())))
    keys = pyarrow.array([str(n) for n in range(count)])
    found = pyarrow.table({"k": keys, **columns})
    pyarrow.parquet.write_table(found, file, compression="zstd")
    return file


REFUSED: dict[str, tuple[bytes, str]] = {
    "cut.jsonl": (b'{"k": 1, "question": "a"}\n{"k": \n', r"cut\.jsonl:2: found not JSON"),
    "scalars.json": (b"[1, 2, 3]", "found a int; expected one object a line"),
    "endless.jsonl": (b'{"k": 1, "question": NaN}\n', "found None; expected text"),
    "latin.csv": (b"k,question\n1,\xff\xfe\n", "not UTF-8"),
    "words.txt": (b"q", r"words\.txt:1: found not JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_load_examples_of_a_file_that_is_no_question_set_is_one_line(
    name: str, tmp_path: Path
) -> None:
    data, words = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=words) as found:
        load_examples(task(tmp_path / name), 0)
    assert "\n" not in str(found.value)


LOAD = """
import sys
from pathlib import Path
from convbench.tasks.load import load_examples
from tests.helpers.question_files import task
found = load_examples(task(Path(sys.argv[1]), 3), 0)
print(len(found.examples), sum(len(e.question) for e in found.examples))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) // 1024)
"""


def loaded(file: Path) -> tuple[str, int]:
    """Return what a process of its own says of a file, and its largest memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(file)], text=True, capture_output=True, check=True
    )
    said, peak = done.stdout.splitlines()
    return said, int(peak)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux alone")
def test_load_examples_holds_what_is_drawn_alone(tmp_path: Path) -> None:
    few = table(tmp_path / "few.parquet", question=repeated("x" * 1_000_000, 3))
    many = table(tmp_path / "many.parquet", question=repeated("x" * 1_000_000, 200))
    assert many.stat().st_size < 1 << 20
    (said, peak), (same, least) = loaded(many), loaded(few)
    assert said == same == "3 3000000"
    assert peak < least + 150, "the 197 others are not held"


def test_load_examples_reads_no_columns_that_no_question_needs(tmp_path: Path) -> None:
    media = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    image = pyarrow.array([{"bytes": b"x" * (8 << 20), "path": None}, None], type=media)
    file = table(
        tmp_path / "x.parquet", question=pyarrow.array(["a?", "b?"]), image=image,
        other=pyarrow.array(["x" * (8 << 20), "y"]),
    )  # fmt: skip
    found = load_examples(task(file, "all", inputs={"seen": "image"}), 0)
    assert {e.question: e.inputs["seen"] for e in found.examples} == {"a?": "[media]", "b?": None}
    with pytest.raises(DataError, match=r"no such field; .* \['image', 'k', 'other', 'question'\]"):
        load_examples(task(file, "all", answer="gold"), 0)


def test_load_examples_draws_of_two_readings_what_one_drew(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    said = [{"k": n, "question": f"q {n}?", "gold": n % 3, "unused": "u"} for n in range(200)]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*said, said[0]]))
    made = task(file, 50, answer="gold | string", inputs={"n": "k"})
    found = load_examples(made, 0)
    assert (len(found.examples), found.rows, found.rejected) == (50, 201, {"repeated": 1})
    for example in found.examples:
        row = said[int(example.example_id)]
        assert (example.question, example.inputs) == (row["question"], {"n": row["k"]})
        assert example.answer == str(row["gold"])


def test_load_examples_of_a_folder_takes_the_splits_that_are_named(tmp_path: Path) -> None:
    for split in ("test", "train", "extra"):
        row = {"k": split, "question": f"{split}?"}
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    made = task(tmp_path, "all")
    splits = {"source": {"file": str(tmp_path), "splits": ("extra", "test")}}
    found = load_examples(made.model_validate({**made.model_dump(), **splits}), 0)
    assert {example.example_id for example in found.examples} == {"extra", "test"}
    none = {"source": {"file": str(tmp_path), "splits": ("dev",)}}
    with pytest.raises(DataError, match="no split 'dev'; there is: train, test, extra"):
        load_examples(made.model_validate({**made.model_dump(), **none}), 0)
