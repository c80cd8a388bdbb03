"""The requests and replies of a run word for word, where it keeps them (`--keep-wire`).

Each in a file of JSON lines beside the journal, without headers, keys and what looks like one,
images as their sizes; bounded, and what is left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from convbench.blot import address, keys
from convbench.models.listening import LISTENER, Heard
from convbench.store.jsonl import Appender, lines, parse

NAME = "wire.jsonl"
LONGEST = 128 << 10
"""Characters of a request or a reply that are kept."""
LARGEST = 512 << 20
"""Bytes of the file."""
EMPTY = {"method": "", "url": "", "status": None, "seconds": 0.0, "request": None, "reply": None}
_IMAGE = re.compile(r"data:[\w/+.-]{1,80};base64,[A-Za-z0-9+/=]+")


class WireFile:
    """Keeps what goes over the wire while a call is made."""

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)
        self._size = path.stat().st_size if path.exists() else 0
        self.left_out = 0
        """Requests that were not kept, because the file is as large as it may be."""

    @contextmanager
    def keeping(self, key: str) -> Iterator[None]:
        """Keep what is sent and comes back inside, under a call's key."""
        before = LISTENER.set(lambda heard: self._keep(key, heard))
        try:
            yield
        finally:
            LISTENER.reset(before)

    def _keep(self, key: str, heard: Heard) -> None:
        record = {
            "key": key,
            "method": heard.method,
            "url": address(heard.url),
            "status": heard.status,
            "seconds": round(heard.seconds, 4),
            "request": _body(heard.request),
            "reply": _body(heard.reply),
        }
        line = orjson.dumps(record)
        if self._size + len(line) > LARGEST:
            self.left_out += 1
            return
        self._records.write(line)
        self._size += len(line) + 1

    def close(self) -> None:
        """Close the file."""
        self._records.close()


def _body(data: bytes) -> Any:
    """Return a body as JSON where it is some, else as text; a long one is cut, and says so."""
    text = _IMAGE.sub(
        lambda one: f"[image: {len(one[0]):,} characters]", data.decode("utf-8", "replace")
    )
    text = keys(text)
    if len(text) > LONGEST:
        return f"{text[:LONGEST]} … [{len(text) - LONGEST:,} characters more were not kept]"
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def kept(path: Path, key: str) -> dict[str, list[dict[str, Any]]]:
    """Return by call what was kept of the conversation of this key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _, line in lines(path):
        record = parse(line)
        said = record.get("key")
        if isinstance(said, str) and said.rpartition("@")[0] == key:
            found.setdefault(said, []).append({**EMPTY, **record})
    return found
