"""Read and append `logprobs.bin` of a run: log-probabilities of sampled tokens, 8 to 12 bytes each.

The file is a sequence of frames: mark, length and checksum of the body, then the body: the call's
key, a hash of the reply's text, the kind of numbers, and float32 and uint32 arrays. Readers skip a
torn last frame, which the next writer cuts off; any other damage is an error.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from convbench.errors import RunError
from convbench.schema import Conversation, text_of
from convbench.schema.chat import MOST_LOGPROBS, TokenProbs, probs_problem
from convbench.store.jsonl import disk_error
from convbench.util.regular import open_to_append, open_to_read

FILE = "logprobs.bin"
_HEAD = struct.Struct("<4sII")
_MARK = b"CBLP"
_BODY = struct.Struct("<H8sBI")
_IDS, _DRAWN = 1, 2
_LONGEST = 12 * MOST_LOGPROBS + 70_000
"""Largest number of bytes of a body."""


def call_key(conversation: Conversation, turn: int, reply: int | None = None) -> str:
    """Return the key of the model call behind a turn's reply, or behind its tool round `reply`,
    from 0.

    It is `KEY@TURN`, then `~N` for the N-th redraw, then `.N` for a reply after N tool rounds.
    """
    spoken = conversation.turns[turn]
    number = len(spoken.rounds) if reply is None else reply
    draw = f"~{spoken.redrawn}" if spoken.redrawn else ""
    return f"{conversation.key}@{turn}{draw}" + (f".{number}" if number else "")


class ProbsFile:
    """Appends frames; the first one opens the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def append(self, key: str, text: str, probs: TokenProbs) -> None:
        """Append the log-probabilities of one reply under its call's key and a hash of its text.

        The first one opens the file and cuts off a torn last frame. Raises RunError if it cannot be
        written, or if it is damaged.
        """
        body = _pack_body(key, text, probs)
        frame = _HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body
        try:
            if self._file is None:
                end = end_of_frames(self.path)
                self._file = open_to_append(self.path)
                self._file.truncate(end)
            self._file.write(frame)
        except OSError as error:
            raise disk_error(self.path, error) from None

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RecordedProbs:
    """Log-probabilities of a run's replies; memory holds only the offsets of the frames."""

    def __init__(self, *folders: Path) -> None:
        """Index the files in these folders, the run's and its shards'. Raises RunError for a
        damaged one."""
        self._at: dict[tuple[str, bytes], tuple[Path, int, int]] = {}
        for path in (folder / FILE for folder in folders):
            for start, body in _iter_frames(path):
                key, mark = _key_and_hash(path, start, body)
                self._at[key, mark] = (path, start, len(body))

    def __len__(self) -> int:
        return len(self._at)

    def probs_of(self, key: str, text: str) -> TokenProbs | None:
        """Return the log-probabilities of the reply with this text to this call, or None if there
        are none.

        Of several the last one counts. Raises RunError for a damaged frame.
        """
        where = self._at.get((key, _text_hash(text)))
        if where is None:
            return None
        path, start, length = where
        with open_to_read(path) as file:
            file.seek(start + _HEAD.size)
            return _unpack_probs(path, start, file.read(length))


def replies_of(conversation: Conversation, policy: str) -> Iterator[tuple[str, str]]:
    """Yield (call key, text) of every reply of the policy in order, including those that call
    tools.

    A turn of tool calls alone has no reply of its own, and a scripted turn is none.
    """
    for turn_index, turn in enumerate(conversation.turns):
        if turn.speaker == policy and turn.finish_reason != "scripted":
            yield from keyed_texts(conversation, turn_index)


def keyed_texts(conversation: Conversation, turn: int) -> Iterator[tuple[str, str]]:
    """Yield (call key, text as the model wrote it) of every reply of a turn: those that called
    tools, then the last, unless the turn ended with its calls."""
    spoken = conversation.turns[turn]
    for number, tool_round in enumerate(spoken.rounds):
        text = (tool_round.spoken and tool_round.raw) or tool_round.content
        yield call_key(conversation, turn, number), text
    if not spoken.calls_alone:
        yield call_key(conversation, turn), text_of(spoken.content)


def _text_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


def _pack_body(key: str, text: str, probs: TokenProbs) -> bytes:
    name = key.encode()
    kind = _IDS * bool(probs.ids) | _DRAWN * bool(probs.drawn)
    parts: list[array[float] | array[int]] = [
        array("f", probs.log_probs),
        array("I", probs.ids or probs.sizes),
    ]
    if probs.drawn:
        parts.append(array("f", probs.drawn))
    head = _BODY.pack(len(name), _text_hash(text), kind, len(probs.log_probs))
    return head + name + b"".join(parts)


def _key_and_hash(path: Path, start: int, body: bytes) -> tuple[str, bytes]:
    """Return (key, hash of the text) of a body. Raises RunError if its lengths do not fit."""
    if len(body) >= _BODY.size:
        length, mark, kind, n = _BODY.unpack_from(body)
        numbers = 12 if kind & _DRAWN else 8
        if n <= MOST_LOGPROBS and len(body) == _BODY.size + length + numbers * n:
            return body[_BODY.size : _BODY.size + length].decode("utf-8", "replace"), mark
    raise RunError(f"{path}: byte {start}: found a record of the wrong length")


def _unpack_probs(path: Path, start: int, body: bytes) -> TokenProbs:
    _key_and_hash(path, start, body)
    length, _, kind, n = _BODY.unpack_from(body)
    columns = []
    at = _BODY.size + length
    for code in ("f", "I", "f") if kind & _DRAWN else ("f", "I"):
        column = array(code)
        column.frombytes(body[at : at + 4 * n])
        columns.append(tuple(column))
        at += 4 * n
    ids, sizes = (columns[1], ()) if kind & _IDS else ((), columns[1])
    probs = TokenProbs(columns[0], ids, sizes, columns[2] if len(columns) > 2 else ())
    why = probs_problem(probs)
    if why:
        raise RunError(f"{path}: byte {start}: {why}")
    return probs


def _iter_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, body) of every complete frame. Raises RunError for a damaged one."""
    try:
        size = path.stat().st_size
        with open_to_read(path) as file:
            start = 0
            while start + _HEAD.size <= size:
                mark, length, check = _HEAD.unpack(file.read(_HEAD.size))
                if mark != _MARK or length > _LONGEST:
                    raise RunError(f"{path}: byte {start}: found no record of log-probabilities")
                if start + _HEAD.size + length > size:
                    return
                body = file.read(length)
                if zlib.crc32(body) != check:
                    raise RunError(f"{path}: byte {start}: found a damaged record")
                yield start, body
                start += _HEAD.size + length
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None


def end_of_frames(path: Path) -> int:
    """Return the byte offset of the end of the last complete frame, 0 without one or without a
    file.

    Raises RunError for a damaged frame before it.
    """
    end = 0
    for start, body in _iter_frames(path):
        end = start + _HEAD.size + len(body)
    return end
