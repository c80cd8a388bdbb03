"""Write the verbatim requests and replies of a run (`--keep-wire`).

They go to a file of JSON lines next to the journal, without headers, keys and anything that looks
like a key; images are replaced by their sizes. The file is bounded, and omitted requests are
counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from convbench.models.wire_tap import LISTENER, WireRecord
from convbench.store.jsonl import Appender, numbered_lines, parse_line
from convbench.util.redact import redact_text, strip_address

NAME = "wire.jsonl"
LONGEST = 128 << 10
"""Most characters of a request or a reply that are written."""
LARGEST = 512 << 20
"""Most bytes of the file."""
EMPTY = {"method": "", "url": "", "status": None, "seconds": 0.0, "request": None, "reply": None}
_IMAGE = re.compile(r"data:[\w/+.-]{1,80};base64,[A-Za-z0-9+/=]+")


class WireFile:
    """Writes the requests and replies of model calls to a file."""

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)
        self._size = path.stat().st_size if path.exists() else 0
        self.left_out = 0
        """Number of requests that were not written, because the file is full."""

    @contextmanager
    def record_call(self, key: str) -> Iterator[None]:
        """Write the requests and replies made within this context under a call's key; what does not
        fit is counted."""
        before = LISTENER.set(lambda heard: self._write_record(key, heard))
        try:
            yield
        finally:
            LISTENER.reset(before)

    def _write_record(self, key: str, heard: WireRecord) -> None:
        record = {
            "key": key,
            "method": heard.method,
            "url": strip_address(heard.url),
            "status": heard.status,
            "seconds": round(heard.seconds, 4),
            "request": _body_json(heard.request),
            "reply": _body_json(heard.reply),
        }
        line = orjson.dumps(record)
        if self._size + len(line) > LARGEST:
            self.left_out += 1
            return
        self._records.write(line)
        self._size += len(line) + 1

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        self._records.close()


def _body_json(data: bytes) -> Any:
    """Return a body as parsed JSON, else as text, keys redacted; a long one is cut, with a note."""
    text = _IMAGE.sub(
        lambda match: f"[image: {len(match[0]):,} characters]", data.decode("utf-8", "replace")
    )
    text = redact_text(text)
    if len(text) > LONGEST:
        return f"{text[:LONGEST]} … [{len(text) - LONGEST:,} characters more were not kept]"
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def read_records(path: Path, key: str) -> dict[str, list[dict[str, Any]]]:
    """Return {call's key: its records, in order} of the conversation with this key; empty without
    any.

    A record has `key`, `method`, `url`, `status`, `seconds`, `request` and `reply`. A call belongs
    to the conversation if its key before the last `@` is this one.
    """
    records: dict[str, list[dict[str, Any]]] = {}
    for _, line in numbered_lines(path):
        record = parse_line(line)
        record_key = record.get("key")
        if isinstance(record_key, str) and record_key.rpartition("@")[0] == key:
            records.setdefault(record_key, []).append({**EMPTY, **record})
    return records
