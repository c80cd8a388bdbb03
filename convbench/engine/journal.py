"""The journal of finished model calls: what makes resume exact to the call."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from convbench.errors import RunError
from convbench.schema import Completion, ImagePart, Message, Noun, Sampling, TextPart

_START = b'{"key":"'
_LAST = "\U0010ffff"
"""Sorts after every character that a key may hold."""


def call_hash(ref: str, sampling: Sampling, messages: Sequence[Message]) -> str:
    """Return 16 hex digits that name one call: model, sampling and messages."""
    data = orjson.dumps(
        [ref, sampling.model_dump(), list(messages)], default=_plain, option=orjson.OPT_SORT_KEYS
    )
    return hashlib.sha256(data).hexdigest()[:16]


class Journal:
    """Finished calls in a file of JSON lines (`calls.jsonl`), appended one by one.

    A reply survives this process being killed once `append` has returned (it is in the system's
    cache; no fsync). Memory holds only what `load` asked for, until `forget`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[tuple[str, str], bytes] = {}
        self._order: list[tuple[str, str]] = []
        self._file: FileIO | None = None

    def load(self, keys: Callable[[str], bool] = lambda _key: True) -> int:
        """Read the calls whose key `keys` accepts; return how many were kept.

        Lines that cannot be read (the torn last one of a killed process) are passed over: the
        call is made again.
        """
        for line in self._read():
            key = _key(line)
            if key is None or not keys(key):
                continue
            record = _parse(line)
            if record is not None:
                self._lines[key, record["hash"]] = line
        self._order = sorted(self._lines)
        return len(self._lines)

    def totals(self) -> tuple[int, float]:
        """Return tokens and known dollars of every call in the file, for a run-wide budget."""
        tokens, usd = 0, 0.0
        for line in self._read():
            record = _parse(line) or {}
            tokens += (record.get("prompt_tokens") or 0) + (record.get("completion_tokens") or 0)
            usd += record.get("cost_usd") or 0.0
        return tokens, usd

    def get(self, key: str, hash: str) -> Completion | None:
        """Return the reply of a finished call; None where there is none that was loaded."""
        line = self._lines.get((key, hash))
        record = _parse(line) if line is not None else None
        return _completion(record) if record else None

    def append(self, key: str, hash: str, completion: Completion) -> None:
        """Write one finished call. OSError (disk full, ...) goes up to the caller."""
        record = {"key": key, "hash": hash, **_fields(completion)}
        line = orjson.dumps(record, default=_plain, option=orjson.OPT_APPEND_NEWLINE)
        file = self._file or self._open()
        written = file.write(line)
        if written != len(line):
            raise OSError(28, f"{self.path}: no space left on device")

    def forget(self, prefix: str) -> None:
        """Drop from memory all calls whose key starts with `prefix`; the file keeps them."""
        low = bisect_left(self._order, (prefix, ""))
        high = bisect_left(self._order, (prefix + _LAST, ""))
        for entry in self._order[low:high]:
            del self._lines[entry]
        del self._order[low:high]

    def __len__(self) -> int:
        return len(self._lines)

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                yield from file
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read: {error.strerror}") from None

    def _open(self) -> FileIO:
        """Open for appending; a torn last line is ended, so that it spoils no other."""
        torn = False
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                file.seek(-1, 2)
                torn = file.read(1) != b"\n"
        self._file = FileIO(self.path, "ab")
        if torn:
            self._file.write(b"\n")
        return self._file


def _key(line: bytes) -> str | None:
    """Return the key of a line without parsing all of it."""
    if line.startswith(_START):
        end = line.find(b'"', len(_START))
        raw = line[len(_START) : end]
        if end > 0 and b"\\" not in raw:
            return raw.decode("utf-8", "replace")
    record = _parse(line)
    return str(record["key"]) if record else None


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    whole = isinstance(record, dict) and "key" in record and "hash" in record
    return record if whole and "content" in record else None


def _plain(value: object) -> object:
    if isinstance(value, Noun):
        return value.model_dump()
    raise TypeError(f"cannot write {type(value).__name__}")


def _fields(completion: Completion) -> dict[str, Any]:
    return {
        "content": completion.content,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cost_usd": completion.cost_usd,
        "model": completion.model,
    }


def _completion(record: dict[str, Any]) -> Completion:
    content = record["content"]
    if isinstance(content, list):
        content = tuple(_part(part) for part in content)
    return Completion(
        content=content,
        finish_reason=record.get("finish_reason", "other"),
        prompt_tokens=record.get("prompt_tokens"),
        completion_tokens=record.get("completion_tokens"),
        cost_usd=record.get("cost_usd"),
        model=record.get("model"),
    )


def _part(part: dict[str, Any]) -> TextPart | ImagePart:
    kind = TextPart if part.get("type") == "text" else ImagePart
    return kind.model_validate(part)
