"""Seals of runs and folders: what they cover, and that every change of a record is found."""

import contextlib
import json
import random
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.store import Run
from convbench.store.folder_seal import check_folder, seal_folder
from convbench.store.jsonl import Appender
from convbench.store.seal import FILE, check_seals, read_seals, seal_run
from tests.bench.mutations import mutate, whole
from tests.reports.synthetic import make, questions


@pytest.fixture
def run(tmp_path):
    """A run of a few records, sealed once."""
    made = make(tmp_path / "run", questions(4), lambda q, k: "A", overall=lambda q, k: 5.0)
    with made.lock():
        pass
    return made


def problems(run):
    return list(check_seals(run.path).problems)


def test_a_writer_seals_what_it_wrote_and_no_more_each_time(run):
    assert problems(run) == []
    before = read_seals(run.path)
    assert {one.file for one in before} >= {"run.json", "conversations.jsonl", "verdicts.jsonl"}
    with run.lock(), Appender(run.verdicts_file) as file:
        file.write(run.verdicts_file.read_bytes().splitlines()[0])
    after = read_seals(run.path)
    (fresh,) = after[len(before) :]  # the bytes that came, not the whole file again
    end = next(one.end for one in reversed(before) if one.file == "verdicts.jsonl")
    assert (fresh.file, fresh.start) == ("verdicts.jsonl", end)
    assert problems(run) == []


def test_what_a_killed_writer_left_is_sealed_by_the_next(run):
    with run.conversations_file.open("ab") as file:
        file.write(b'{"key": "torn')  # no newline: the next writer cuts it off
    assert any("after the last seal" in text for text in problems(run))
    with run.lock(), Appender(run.conversations_file):
        pass
    assert problems(run) == []


def test_a_change_is_not_sealed_over(run):
    lines = run.conversations_file.read_bytes().splitlines(keepends=True)
    forged = lines[0].replace(b"The answer is A", b"The answer is B")
    assert forged != lines[0]
    run.conversations_file.write_bytes(b"".join([forged, *lines[1:]]))
    with run.lock():  # the next writer seals what is new, and leaves what was
        pass
    assert [text.partition(":")[0] for text in problems(run)] == ["conversations.jsonl"]


@pytest.mark.parametrize("what", ["line", "gone", "short", "own", "outside", "media"])
def test_what_lies_about_a_seal_is_found(run, what, tmp_path):
    file = run.path / FILE
    lines = file.read_bytes().splitlines(keepends=True)
    if what == "line":
        file.write_bytes(b"".join([*lines[:1], *lines[2:]]))
    elif what == "gone":
        file.unlink()
    elif what == "short":
        run.verdicts_file.write_bytes(run.verdicts_file.read_bytes()[:-40])
    elif what == "own":
        record = json.loads(lines[-1]) | {"end": 1}
        file.write_bytes(b"".join([*lines[:-1], json.dumps(record).encode() + b"\n"]))
    elif what == "outside":
        (tmp_path / "secret").write_text("x")
        record = json.loads(lines[-1]) | {"file": "../secret", "start": 0, "end": 1}
        file.write_bytes(b"".join([*lines, json.dumps(record).encode() + b"\n"]))
    else:
        run.media_folder.mkdir()
        (run.media_folder / "a.png").write_bytes(b"\x89PNG")
    assert problems(run)


def test_a_seal_that_cannot_be_read_is_one_line(run):
    (run.path / FILE).write_bytes(b"[1, 2]\n")
    with pytest.raises(RunError, match=r"seals\.jsonl:1"):
        check_seals(run.path)
    with run.lock():  # and stops no writer
        pass


def test_random_changes_of_a_run_are_all_found(run):
    """A small part of `python -m tests.bench mutations`."""
    draw = random.Random(3)
    files = [path for path in run.path.rglob("*") if path.is_file() and path.name != ".lock"]
    kept = {path: path.read_bytes() for path in files}
    for number in range(60):
        path = draw.choice(files)
        changed, how = mutate(kept[path], draw)
        path.write_bytes(changed)
        try:
            found = problems(run)
        except RunError as error:
            found = [str(error)]
        assert found, f"{number}: {how} in {path.name} was not found"
        path.write_bytes(kept[path])
    assert problems(run) == []


def test_the_changes_of_the_bench_are_changes():
    draw = random.Random(5)
    for data in (b'{"a": 1, "b": "text"}\n{"a": 2, "b": "more"}\n', b"\x89PNG\x00\x01" * 9):
        told = {mutate(data, draw)[1] for _ in range(200)}
        assert all(mutate(data, draw)[0] != data for _ in range(200))
        assert len(told) >= 3
    assert whole({Path("a"): b"x"}) == whole({Path("a"): b"x"})


def test_no_two_lines_of_a_seal_can_change_places(tmp_path):
    """They say the same in another order, and would be taken for the seal as it was written."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    about = {"repo": "me/x", "judge": "rules", "made": {"z": 1, "y": 2, "x": 3}}
    seal_folder(tmp_path, "set", ["a.txt", "b.txt"], about)
    path = tmp_path / "seal.json"
    lines = path.read_text().splitlines(keepends=True)
    tried = 0
    for one in range(len(lines)):
        for other in range(one):
            swapped = list(lines)
            swapped[one], swapped[other] = lines[other], lines[one]
            if swapped == lines:
                continue
            path.write_text("".join(swapped))
            tried += 1
            with contextlib.suppress(RunError):
                assert check_folder(tmp_path).problems, (lines[one], lines[other])
    assert tried > 50
    made = json.loads("".join(lines))
    names = ("kind", "about", "files", "sha256")
    older = {name: about if name == "about" else made[name] for name in names}
    path.write_text(json.dumps(older, indent=1) + "\n")
    assert check_folder(tmp_path).problems == ()  # as it used to be written


def test_a_sealed_folder_tells_what_changed(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.txt").write_text("two")
    seal_folder(tmp_path, "set", ["a.txt", "b/c.txt"], {"repo": "me/x"})
    first = (tmp_path / "seal.json").read_bytes()
    assert check_folder(tmp_path, refuse_extra=True).problems == ()
    seal_folder(tmp_path, "set", ["b/c.txt", "a.txt"], {"repo": "me/x"})
    assert (tmp_path / "seal.json").read_bytes() == first
    (tmp_path / "d.txt").write_text("more")
    (tmp_path / "a.txt").write_text("One")
    (tmp_path / "b" / "c.txt").unlink()
    told = check_folder(tmp_path, refuse_extra=True).problems
    assert {text.partition(":")[0] for text in told} == {"a.txt", "b/c.txt", "d.txt"}
    record = json.loads(first)
    for change in ({"about": {"repo": "me/y"}}, {"files": {"../../etc/passwd": "0"}}):
        (tmp_path / "seal.json").write_text(json.dumps(record | change))
        assert check_folder(tmp_path).problems
    (tmp_path / "seal.json").write_text("{}")
    with pytest.raises(RunError, match="found no seal"):
        check_folder(tmp_path)


def test_a_run_that_cannot_be_sealed_is_written_all_the_same(run):
    (run.path / FILE).unlink()
    (run.path / FILE).mkdir()  # as a disk that refuses
    with run.lock():
        pass
    seal_run(run.path)
    assert Run.open(run.path).manifest == run.manifest
