"""Files of JSON lines: whatever a kill left, each line that was written is read once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.store import examples, jsonl
from convbench.store.byte_offsets import read_range, size_of
from convbench.store.jsonl import Appender, lines_with_offsets, numbered_lines
from tests.helpers.runs import example, write_run


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b'{"key":"k%06d","x":"%s"}\n' % (n, b"ab" * (n % 97)) for n in range(start, count)]


def read(path: Path) -> list[bytes]:
    found = list(numbered_lines(path))
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [line for _, line in found]


def test_a_torn_last_line_is_not_read_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path, said = tmp_path / "c.jsonl", numbered(900)
    path.write_bytes(b"".join(said[:500]) + b'{"key":"torn')
    assert read(path) == said[:500]
    with Appender(path) as file:
        for line in said[500:]:
            file.write(line[:-1])
    assert read(path) == said


def test_lines_are_found_at_their_offsets(tmp_path: Path) -> None:
    path, said = tmp_path / "c[1].jsonl", numbered(3_000)
    path.write_bytes(b"".join(said))
    for number, start, line in list(lines_with_offsets(path))[::400]:
        assert read_range(path, start, len(line)) == line == said[number - 1]
    with pytest.raises(RunError, match="the file has changed"):
        read_range(path, size_of(path) - 3, 4)


WRITER = """
import sys
from convbench.store import jsonl
from pathlib import Path
with jsonl.Appender(Path(sys.argv[1])) as file:
    for n in range(int(sys.argv[2]), 10**7):
        file.write(b'{"key":"k%06d","x":"%s"}' % (n, b"ab" * (n % 97)))
        if n == int(sys.argv[2]):
            print("begun", flush=True)
"""


def test_kills_amid_writing_lose_nothing_that_was_written_and_double_nothing(
    tmp_path: Path,
) -> None:
    path, had = tmp_path / "c.jsonl", 0
    for turn in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(had)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.05 + 0.03 * turn)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = read(path)
        assert found == numbered(len(found))
        assert len(found) > had
        had = len(found)


def test_questions_of_a_large_run_are_read_where_they_lie(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", examples=[example(n) for n in range(300)], conversations=[])
    small = dict(run.examples)
    large = examples.ExampleFile(run.path / "examples.jsonl")
    assert dict(large) == small
    assert list(large) == list(small)
    assert len(large) == 300
    assert list(large.values()) == list(small.values())
    assert all(large[name] == one for name, one in small.items())
    assert "none" not in large
    assert large.get("none") is None
    doubled = tmp_path / "twice.jsonl"
    doubled.write_bytes((example(1).model_dump_json() + "\n").encode() * 2)
    with pytest.raises(RunError, match="a second time"):
        examples.ExampleFile(doubled)


def test_nothing_is_written_behind_a_last_line_that_could_not_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several calls may try: the first is refused, and so is each that follows."""
    monkeypatch.setattr(jsonl, "LONGEST", 1000)
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"x" * 70_000)
    log = Appender(path)
    for _ in range(2):
        with pytest.raises(RunError, match="last line of more than"):
            log.write(b"{}")
    log.close()
    assert path.read_bytes() == b"x" * 70_000
