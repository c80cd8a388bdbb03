"""Pieces of bytes that lie in a temporary file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.store.spilled import AT_ONCE, SpilledPieces
from tests.support.memory import BLOCK, held_below


def pieces_of(count: int) -> SpilledPieces:
    pieces = SpilledPieces()
    for number in range(count):
        pieces.add(b"%d" % number * (number % 5))
    return pieces


@pytest.mark.parametrize("count", [0, 1, 7, 3 * BLOCK + 5])
def test_pieces_are_what_was_added(count: int) -> None:
    """Read in any order, while they grow too; empty ones, and one longer than is held at once."""
    pieces = pieces_of(count)
    assert len(pieces) == count
    order = list(range(count))
    random.Random(count).shuffle(order)
    assert all(pieces[number] == b"%d" % number * (number % 5) for number in order)
    pieces.add(b"x" * (AT_ONCE + 1))
    pieces.add(b"last")
    assert (pieces[count], pieces[count + 1]) == (b"x" * (AT_ONCE + 1), b"last")
    assert all(pieces[number] == b"%d" % number * (number % 5) for number in order[:9])


def test_pieces_take_no_memory_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held_below(2, pieces_of, 4 * BLOCK, 24 * BLOCK)
    pieces = pieces_of(4 * BLOCK)
    assert list(tmp_path.iterdir()) == []
    assert len(pieces) == 4 * BLOCK
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(RunError, match=r"temporary file cannot be written.*TMPDIR"):
        pieces_of(4 * BLOCK)
