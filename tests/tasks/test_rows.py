"""Question files from strangers: kilobytes that stand for gigabytes, and rows of odd shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from convbench.errors import ConvbenchError, DataError
from convbench.formats.write import import_logs
from convbench.schema import TaskSpec
from convbench.schema.task import Source
from convbench.sources import load_rows
from convbench.tasks.load import load_examples
from tests.helpers.hub_client import Client
from tests.helpers.question_files import TASK, task
from tests.support.exhaustive import by_turns, every_nth

MANY = 8000
"""Times that a text of 1 MB is said."""


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


def texts(folder: Path) -> Path:
    """8 GB of text in some kilobytes."""
    return table(folder / "x.parquet", question=repeated("x" * 1_000_000, MANY))


def nested(folder: Path) -> Path:
    """8 GB of text within lists."""
    places = pyarrow.array(range(0, MANY + 1, 2), pyarrow.int32())
    held = pyarrow.ListArray.from_arrays(places, repeated("x" * 1_000_000, MANY))
    return table(folder / "x.parquet", question=held)


def numbers(folder: Path) -> Path:
    """A list of 60 million numbers in one cell."""
    many = 60_000_000
    zeros = pyarrow.Array.from_buffers(pyarrow.int8(), many, [None, pyarrow.py_buffer(bytes(many))])
    held = pyarrow.ListArray.from_arrays(pyarrow.array([0, many], pyarrow.int32()), zeros)
    return table(folder / "x.parquet", question=held)


def text(folder: Path) -> Path:
    """Texts of 64 MB."""
    return table(folder / "x.parquet", question=repeated("x" * (64 << 20), 100))


def list_of_texts(folder: Path) -> Path:
    """A row of a hundred thousand values."""
    held = pyarrow.array([["x"] * 200_000])
    return table(folder / "x.parquet", question=held)


def lines(folder: Path) -> Path:
    (folder / "x.jsonl").write_text('{"k": 1, "question": "' + "x" * (17 << 20) + '"}\n')
    return folder / "x.jsonl"


def cell(folder: Path) -> Path:
    (folder / "x.csv").write_text("k,question\n1," + "x" * (5 << 20) + "\n")
    return folder / "x.csv"


def values(folder: Path) -> Path:
    (folder / "x.jsonl").write_text(json.dumps({"k": 1, "question": [0] * 200_000}) + "\n")
    return folder / "x.jsonl"


def deep(folder: Path) -> Path:
    (folder / "x.jsonl").write_text('{"k": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    return folder / "x.jsonl"


def endless(folder: Path) -> Path:
    (folder / "x.jsonl").write_text('{"k": 1, "question": NaN}\n')
    return folder / "x.jsonl"


def scalars(folder: Path) -> Path:
    (folder / "x.json").write_text("[1, 2, 3]")
    return folder / "x.json"


def not_parquet(folder: Path) -> Path:
    (folder / "x.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    return folder / "x.parquet"


def cut(folder: Path) -> Path:
    file = table(folder / "x.parquet", question=repeated("x", 100))
    file.write_bytes(file.read_bytes()[:-40] + bytes(40))
    return file


def rows(folder: Path) -> Path:
    count = 10_000_001
    held = pyarrow.array([0], pyarrow.int8()).take(pyarrow.nulls(count, pyarrow.int8()))
    found = pyarrow.table({"k": held, "question": held})
    pyarrow.parquet.write_table(found, folder / "x.parquet")
    return folder / "x.parquet"


REFUSED: tuple[Callable[[Path], Path], ...] = (
    numbers, text, list_of_texts, lines, cell, values, deep, endless, scalars, not_parquet, cut,
    rows,
)  # fmt: skip


@pytest.mark.parametrize("made", every_nth(3, REFUSED))
def test_a_file_that_is_no_question_set_is_one_line(
    made: Callable[[Path], Path], tmp_path: Path
) -> None:
    file = made(tmp_path)
    with pytest.raises(DataError) as found:
        load_examples(task(file), 0)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 1000
    assert file.name in str(found.value) or "row 1 (train)" in str(found.value)


LOAD = """
import sys
from pathlib import Path
from convbench.errors import ConvbenchError
from convbench.tasks.load import load_examples
from tests.helpers.hub_client import Client
from tests.helpers.question_files import task
count = sys.argv[2] if sys.argv[2] == "all" else int(sys.argv[2])
try:
    found = load_examples(task(Path(sys.argv[1]), count), 0)
    print(len(found.examples), sum(len(e.question) for e in found.examples))
except ConvbenchError as error:
    print(error)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) // 1024)
"""


def loaded(file: Path, count: int | str) -> tuple[str, int]:
    """Return what a process of its own says of a file, and its largest memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(file), str(count)], text=True, capture_output=True,
        check=True,
    )  # fmt: skip
    said, peak = done.stdout.splitlines()
    return said, int(peak)


@pytest.mark.exhaustive
def test_what_is_drawn_alone_is_made(tmp_path: Path) -> None:
    few = table(tmp_path / "few.parquet", question=repeated("x" * 1_000_000, 3))
    many = table(tmp_path / "many.parquet", question=repeated("x" * 1_000_000, 200))
    assert many.stat().st_size < 1 << 20
    (said, peak), (same, least) = loaded(many, 3), loaded(few, 3)
    assert said == same == "3 3000000"
    assert peak < least + 150, "the 197 others are not held"


@pytest.mark.parametrize(("made", "count"), by_turns([texts, nested], [3, "all"]))
def test_kilobytes_that_stand_for_gigabytes_are_refused(
    made: Callable[[Path], Path], count: int | str, tmp_path: Path
) -> None:
    said, peak = loaded(made(tmp_path), count)
    assert "unpacks to more than 4,294,967,296 bytes" in said
    assert peak < 600


def test_columns_that_no_question_needs_are_not_read(tmp_path: Path) -> None:
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


def test_two_readings_draw_what_one_drew(tmp_path: Path) -> None:
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
    assert load_rows(Source(file=str(file)))[0][0] == {**said[0], "_split": "train"}


def from_hub(repo: str) -> str:
    """What a build says of a set on the Hub, and its largest memory, for the client's process."""
    spec = TaskSpec.model_validate({**TASK, "source": {"hub": repo}, "sample": {"count": 3}})
    try:
        said = str(len(load_examples(spec, 0).examples))
    except ConvbenchError as error:
        said = str(error)
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) >> 10
    return f"{peak} MiB: {said}"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")
def test_a_set_on_the_hub_is_held_to_memory_too(hub: Client, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    texts(tmp_path / "set")
    hub.hub.add_dataset("org/bomb", tmp_path / "set")
    said = hub(from_hub, "org/bomb")
    assert "dataset org/bomb: its rows need more memory than a question set may use" in said
    assert int(said.split()[0]) < 6000


SAID = '"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]'
LINES = (
    "5", "null", "[1]", '"x"', "{}", '{"messages":5}', '{"messages":[5]}',
    '{"messages":[{"role":5,"content":"a"}]}', '{"messages":[{"role":{},"content":"a"}]}',
    f'{{{SAID},"reward":1{"0" * 400}}}', f'{{{SAID},"reward":NaN}}', f'{{{SAID},"reward":1e999}}',
    f'{{{SAID},"reward":{{"a":[]}}}}', f'{{{SAID},"reward":[[1]]}}', f'{{{SAID},"reward":true}}',
    f'{{{SAID},"temperature":-1}}', f'{{{SAID},"temperature":1{"0" * 400}}}',
    f'{{{SAID},"example_id":[]}}', f'{{{SAID},"example_id":"\\ud800"}}', f'{{{SAID},"split":5}}',
    f'{{{SAID},"choices":{{"text":5}}}}', f'{{{SAID},"choices":5}}', f'{{{SAID},"answer":{{}}}}',
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(LINES)))
def test_an_odd_line_of_logged_conversations_is_read_or_left_out_with_its_place(
    number: int, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("{" + SAID + "}\n" + LINES[number] + "\n")
    done = import_logs(str(file), tmp_path / "run", "id")
    assert done.conversations + done.left_out == 2
    assert done.conversations == 2 or "x.jsonl:2" in done.notes[0]
    assert all(len(note) < 500 for note in done.notes)
