"""Questions that took long to make are read the next time: the same ones, or they are made anew."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from convbench.tasks import distractors, draw
from convbench.tasks.cosql import questions
from convbench.tasks.question_cache import MOST_FILES, cached_questions
from tests.helpers.excerpts import EXCERPTS, rows

ROWS: list[dict[str, Any]] = [{"question": f"q{n}", "turn": n} for n in range(4)]
MADE = [{"id": "a", "choices": ["x", "y"], "answer": 1}, {"reject": "too short"}]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "questions"


class Maker:
    """Makes the questions and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[dict[str, Any]]:
        self.times += 1
        return MADE

    def asked(
        self, given: Any = ROWS, seed: int = 0, of: Any = distractors
    ) -> list[dict[str, Any]]:
        return cached_questions("sums", (of,), ("numpy",), given, seed, self)


def test_they_are_made_once_of_the_same_rows_seed_and_code(place: Path) -> None:
    make = Maker()
    assert make.asked() == make.asked() == MADE
    assert make.times == 1
    make.asked(ROWS[:3])
    make.asked(ROWS[::-1])
    make.asked(seed=1)
    make.asked(of=draw)
    assert make.times == 5
    assert {file.stat().st_mode & 0o777 for file in place.iterdir()} == {0o600}
    for seed in range(MOST_FILES + 3):
        make.asked(seed=10 + seed)
    assert len(list(place.iterdir())) == MOST_FILES


def _signed(text: bytes) -> Callable[[Path], object]:
    """Put lines in the place of those that were written, signed as if they were these."""

    def put(file: Path) -> None:
        head = orjson.loads(file.read_bytes().partition(b"\n")[0])
        head["sha256"] = hashlib.sha256(text).hexdigest()
        file.write_bytes(orjson.dumps(head) + b"\n" + text)

    return put


@pytest.mark.parametrize(
    "attack",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.write_bytes(file.read_bytes().replace(b'"answer":1', b'"answer":0')),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\x80\x04."),  # what pickles begin with
        lambda file: file.chmod(0o666),
        lambda file: (file.rename(file.with_suffix(".old")),
                      file.symlink_to(file.with_suffix(".old"))),
        lambda file: (file.unlink(), os.mkfifo(file)),
        lambda file: (file.unlink(), file.mkdir()),
        _signed(b"[" * 100_000 + b"\n"),
        _signed(b"[1, 2]\n"),
        _signed(b'{"id": \n'),
    ],
    ids=["torn", "changed", "empty", "pickle", "others may write", "link", "pipe", "folder",
         "deep", "no objects", "no JSON"],
)  # fmt: skip
def test_a_file_that_is_not_as_it_was_written_is_not_read(
    place: Path, attack: Callable[[Path], object]
) -> None:
    make = Maker()
    make.asked()
    [file] = place.iterdir()
    attack(file)
    assert make.asked() == MADE
    assert make.times == 2


def test_rows_and_folders_that_cannot_be_kept_are_made_each_time(place: Path) -> None:
    make = Maker()
    make.asked([{"question": object()}])
    assert not place.exists()
    place.parent.mkdir()
    place.write_text("no folder")
    assert make.asked() == make.asked() == MADE
    assert make.times == 3


@pytest.mark.exhaustive
def test_cosqls_are_the_same_from_the_file(place: Path) -> None:
    given = list(rows(EXCERPTS / "hub" / "cosql" / "cosql" / "validation.jsonl"))
    made = list(questions(given, seed=3))
    assert any("reject" not in one for one in made)
    [file] = place.iterdir()
    before = file.stat().st_mtime_ns
    assert list(questions(given, seed=3)) == made
    assert file.stat().st_mtime_ns == before
