"""Files that outgrow plain text: what is read is the same, whatever a kill left, and no stranger's
part grows beyond measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from convbench.errors import RunError
from convbench.store import Run, examples, jsonl, parts
from convbench.store import parts as frames
from convbench.store.byte_offsets import OffsetReader, size_of
from convbench.store.jsonl import Appender, lines_with_offsets, numbered_lines
from convbench.store.query import run_query
from tests.helpers.cli import environment, until
from tests.helpers.runs import ANSWERS, conversation, example, failed, verdict, write_run
from tests.support.one_line import one_line


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b'{"key":"k%06d","x":"%s"}\n' % (n, b"ab" * (n % 97)) for n in range(start, count)]


def read(path: Path) -> list[bytes]:
    found = list(numbered_lines(path))
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [line for _, line in found]


def seal(path: Path) -> Path:
    """Compress what is there; return the part."""
    compressor = parts.Compressor(path)
    compressor.rotate()
    compressor.wait()
    path.touch()
    return parts.list_parts(path)[-1]


def test_a_long_file_is_compressed_and_reads_the_same(tmp_path: Path) -> None:
    path, said = tmp_path / "c[1].jsonl", numbered(120_000)
    with Appender(path) as file:
        for line in said:
            file.write(line[:-1])
    assert [part.suffix for part in parts.list_parts(path)] == [".zst"]
    assert size_of(path) == sum(map(len, said))
    assert sum(one.stat().st_size for one in parts.list_files(path)) < size_of(path) / 3
    assert read(path) == said
    places = OffsetReader(path)
    for number, start, line in list(lines_with_offsets(path))[:: len(said) // 7]:
        assert places.read_range(start, len(line)) == line == said[number - 1]


def test_files_that_are_compressed_at_once_do_not_harm_one_another(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.store.compress_at_once", str(tmp_path)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def plain_left(path: Path, part: Path) -> None:
    """Killed between the rename of the whole part and the removal of the plain one."""
    with frames.open_part(part) as stream:
        part.with_suffix("").write_bytes(stream.read())


def half_written(path: Path, part: Path) -> None:
    """Killed while the part was compressed."""
    with frames.open_part(part) as stream:
        part.with_suffix("").write_bytes(stream.read())
    half = part.read_bytes()[: part.stat().st_size // 2]
    (part.parent / f".{part.name}.tmp").write_bytes(half)
    part.unlink()


def no_file(path: Path, part: Path) -> None:
    """Killed before the new file was made."""
    path.unlink()


def torn(path: Path, part: Path) -> None:
    """Killed amid the first line of the new file."""
    path.write_bytes(b'{"key":"torn')


@pytest.mark.parametrize("killed", [plain_left, half_written, no_file, torn])
def test_whatever_a_kill_leaves_each_line_is_there_once(
    killed: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path, said = tmp_path / "c.jsonl", numbered(900)
    path.write_bytes(b"".join(said[:500]))
    killed(path, seal(path))
    assert read(path) == said[:500]
    with Appender(path) as file:
        for line in said[500:]:
            file.write(line[:-1])
    assert read(path) == said
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["c-00001.jsonl.zst", "c.jsonl"]


WRITER = """
import sys
from convbench.store import jsonl
jsonl.LONG = 1 << 16
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
        if turn == 3:
            until(lambda: any(tmp_path.glob("*.zst")), writer)
        time.sleep(0.05 + 0.03 * turn)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = read(path)
        assert found == numbered(len(found))
        assert len(found) > had
        had = len(found)
    assert any(part.suffix == ".zst" for part in parts.list_parts(path))


def test_a_file_that_is_sealed_while_it_is_read_is_read_once(tmp_path: Path) -> None:
    path, said = tmp_path / "c.jsonl", numbered(3000)
    path.write_bytes(b"".join(said[:1000]))
    seal(path)
    path.write_bytes(b"".join(said[1000:]))
    reading = numbered_lines(path)
    found = [next(reading)[1] for _ in range(10)]
    seal(path)
    found += [line for _, line in reading]
    assert found == said == read(path)


def of_frames(*bodies: bytes) -> bytes:
    return b"".join(frames.make_compressor().compress(body) for body in bodies)


def bomb() -> bytes:
    """A gigabyte of one letter, in frames that do not say how much they hold."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join([*(packer.compress(b"a" * (1 << 20)) for _ in range(1024)), packer.flush()])


def said_sizes() -> bytes:
    """The same with sizes: still a bomb."""
    return of_frames(b"a" * (128 << 20)) * 20


WRONG = {
    "no size": (bomb, "no whole zstd frame"),
    "a bomb": (said_sizes, "decompress to as many as"),
    "many small frames": (lambda: of_frames(b"a" * (128 << 10)) * 2000, "decompress to as many as"),
    "cut short": (lambda: of_frames(b'{"key":"a"}\n' * 9999)[:-9], "no whole zstd frame"),
    "flipped": (lambda: bytes(b ^ (n == 40) for n, b in enumerate(of_frames(os.urandom(500)))),
                "damaged"),
    "no zstd": (lambda: b'{"key":"a"}\n', "no whole zstd frame"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_part_that_is_a_bomb_or_no_part_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    made, why = WRONG[kind]
    run = write_run(tmp_path / "r")
    part = run.path / "conversations-00001.jsonl.zst"
    part.write_bytes(made())
    for ask in (
        lambda: list(run.conversations()),
        lambda: run_query("SELECT count(*) FROM conversations", [run]),
        lambda: run_query("SELECT content FROM turns", [run]),
        lambda: OffsetReader(run.conversations_file).read_range(0, 10),
    ):
        with pytest.raises(RunError, match=why) as raised:
            ask()
        assert part.name in one_line(raised.value)


def test_frames_of_a_part_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is another part; what is wrong with one is told each time."""
    path, read_frames, count = tmp_path / "c.jsonl", parts._iter_frames, 0

    def counted(*some: Any) -> Iterator[parts.Frame]:
        nonlocal count
        count += 1
        return read_frames(*some)

    path.write_bytes(b"".join(numbered(3_000)))
    part = seal(path)
    monkeypatch.setattr(parts, "_iter_frames", counted)
    for _ in range(3):
        assert size_of(path) == len(b"".join(numbered(3_000)))
        assert read(path) == numbered(3_000)
    assert count == 1
    other = zstandard.ZstdCompressor().compress(b"".join(numbered(5)))
    part.write_bytes(other)
    assert (read(path), size_of(path)) == (numbered(5), len(b"".join(numbered(5))))
    assert count == 2
    part.write_bytes(other[:-3])
    for _ in range(2):
        with pytest.raises(RunError, match="found no whole zstd frame"):
            read(path)
    assert count == 4


def test_a_run_in_parts_is_the_run_it_was(tmp_path: Path) -> None:
    """Records, attempts, tables; a key that failed before and then succeeded among them."""
    talks = [conversation(0, 0, ANSWERS[0]), failed(1), conversation(1, 0, ANSWERS[1])]
    run = write_run(
        tmp_path / "r",
        examples=[example(0), example(1)],
        conversations=talks,
        verdicts=[verdict(talks[0], None), verdict(talks[0]), verdict(talks[2], 0.2)],
    )

    def whole(found: Run) -> list[object]:
        keys = [one.key for one in found.conversations()]
        views = ("conversations", "turns", "verdicts", "examples")
        return [
            list(found.conversations()), list(found.verdicts()), dict(found.examples),
            [found.attempts().get(key) for key in keys], list(found.conversation_rows()),
            *(run_query(f"SELECT * FROM {view} ORDER BY ALL", [found]).rows for view in views),
        ]  # fmt: skip

    before = whole(run)
    for name in ("examples", "conversations", "verdicts"):
        seal(run.path / f"{name}.jsonl")
    assert whole(Run.open(run.path)) == before


def test_questions_of_a_large_run_are_read_where_they_lie(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", examples=[example(n) for n in range(300)], conversations=[])
    small = dict(run.examples)
    seal(run.path / "examples.jsonl")
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


def test_a_run_of_many_parts_is_asked_whole_and_a_damaged_one_named(tmp_path: Path) -> None:
    """More parts than are read at once, one line each: none is lost or told twice, and one that
    is no record is named, whichever it is."""
    talks = [conversation(n) for n in range(11)]
    run = write_run(tmp_path / "r", examples=[example(n) for n in range(11)], conversations=talks)
    for talk in talks[:10]:
        run.conversations_file.write_bytes(talk.model_dump_json().encode() + b"\n")
        seal(run.conversations_file)
    run.conversations_file.write_bytes(talks[10].model_dump_json().encode() + b'\n{"torn')
    assert len(parts.list_parts(run.conversations_file)) == 10
    sql = "select count(*), count(distinct conversation_id), sum(n_turns) from conversations"
    assert run_query(sql, [Run.open(run.path)]).rows == [(11, 11, 22)]
    part = parts.list_parts(run.conversations_file)[8]
    part.write_bytes(frames.make_compressor().compress(b'{"key":5}\n'))
    with pytest.raises(RunError, match=r"conversations\.jsonl:9: "):
        run_query(sql, [Run.open(run.path)])


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
