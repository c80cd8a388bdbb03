"""`logprobs.bin`: what was written is read, a torn end is passed over, and damage is named."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.schema import Conversation, Turn
from convbench.schema.chat import TokenProbs, probs_problem
from convbench.store.token_probs import FILE, ProbsFile, RecordedProbs, replies_of

BY_IDS = TokenProbs((-0.5, -1.25, 0.0), ids=(7, 0, 4_000_000), drawn=(-0.25, -2.0, 0.0))
BY_SIZES = TokenProbs((-0.5, -3.0), sizes=(4, 0))


def written(folder: Path, *records: tuple[str, str, TokenProbs]) -> Path:
    """Write records into a folder's file."""
    file = ProbsFile(folder / FILE)
    for record in records:
        file.append(*record)
    file.close()
    return folder / FILE


def test_what_was_written_is_read_by_call_and_text(tmp_path: Path) -> None:
    path = written(tmp_path, ("q/0@1", "hello", BY_IDS), ("q/0@1", "other", BY_SIZES))
    found = RecordedProbs(tmp_path)
    assert len(found) == 2
    assert found.probs_of("q/0@1", "hello") == BY_IDS
    assert found.probs_of("q/0@1", "other") == BY_SIZES
    assert found.probs_of("q/0@3", "hello") is None
    assert path.stat().st_size < 2 * 60 + 3 * 12 + 2 * 8, "8 or 12 bytes a token"
    assert len(RecordedProbs(tmp_path / "none")) == 0


def test_the_newest_of_a_reply_counts(tmp_path: Path) -> None:
    written(tmp_path, ("k", "x", BY_IDS), ("k", "x", BY_SIZES))
    assert RecordedProbs(tmp_path).probs_of("k", "x") == BY_SIZES


def test_a_torn_end_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = written(tmp_path, ("a", "x", BY_IDS), ("b", "y", BY_IDS))
    whole = path.read_bytes()
    for lost in (1, 20, 50):
        path.write_bytes(whole[:-lost])
        assert len(RecordedProbs(tmp_path)) == 1
        written(tmp_path, ("c", "z", BY_SIZES))
        found = RecordedProbs(tmp_path)
        assert (len(found), found.probs_of("c", "z")) == (2, BY_SIZES)


def frame(body: bytes, *, length: int | None = None, mark: bytes = b"CBLP") -> bytes:
    """A frame whose checksum holds."""
    size = len(body) if length is None else length
    return struct.pack("<4sII", mark, size, zlib.crc32(body)) + body


def body(n: int, numbers: bytes, kind: int = 1) -> bytes:
    """The body of a record under key `k`."""
    return struct.pack("<H8sBI", 1, b"\0" * 8, kind, n) + b"k" + numbers


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame(b"", mark=b"EVIL"), "no record of log-probabilities"),
        (frame(b"x", length=1 << 31) + b"x", "no record of log-probabilities"),
        (frame(b"short"), "wrong length"),
        (frame(body(1 << 30, b"")), "wrong length"),
        (frame(body(2, struct.pack("<fI", -1, 1))), "wrong length"),
        (frame(body(1, struct.pack("<fI", -1, 1)))[:-1] + b"\7" + b"\0" * 40, "damaged"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(RunError, match=rf"logprobs.bin: byte 0: found.*{why}"):
        RecordedProbs(tmp_path)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 0.5, float("-inf")])
def test_numbers_that_are_none_are_refused_when_read(tmp_path: Path, number: float) -> None:
    probs = TokenProbs((number,), ids=(1,))
    assert probs_problem(probs)
    written(tmp_path, ("k", "x", probs))
    with pytest.raises(RunError, match="found a log-probability that is no number of at most 0"):
        RecordedProbs(tmp_path).probs_of("k", "x")


def test_what_does_not_hold_together_is_told() -> None:
    assert probs_problem(BY_IDS) is None
    assert "expected as many" in str(probs_problem(TokenProbs((-1.0, -1.0), ids=(1,))))
    assert "expected one of them" in str(probs_problem(TokenProbs((-1.0,))))
    assert "expected one of them" in str(probs_problem(TokenProbs((-1.0,), ids=(1,), sizes=(1,))))
    assert "expected 1 to" in str(probs_problem(TokenProbs(())))
    assert "below 0" in str(probs_problem(TokenProbs((-1.0,), ids=(-1,))))


def test_scripted_turns_are_no_replies() -> None:
    turns = (
        Turn(speaker="assistant", step="open", content="Hello", finish_reason="scripted"),
        Turn(speaker="assistant", step="reply", content="4"),
    )
    talk = Conversation(key="q#0", conversation_id="c", example_id="q", turns=turns)
    assert list(replies_of(talk, "assistant")) == [("q#0@1", "4")]
