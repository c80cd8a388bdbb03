"""Cache of replies shared by runs, keyed by everything that a reply depends on (`--cache`).

A reply is reused only for the same model, address, settings, messages, sampling, question, sample
and step. So samples stay independent. Replies of models that run here are not cached: their weights
may have changed, and they cost nothing.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from convbench.engine.journal import REPLY, dump_noun, reply_record
from convbench.errors import RunError
from convbench.schema import Completion, Message, Sampling, without_stable
from convbench.util.redact import redact_bytes
from convbench.util.regular import open_to_read

SETUP = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS replies (name TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID;
"""
CONVERSATION = re.compile(r"\b[0-9a-f]{20}\b")
"""A conversation's id in a call's key, as in a judge's: it belongs to one run, and the
conversation's text is in the messages."""


class ReplyCache:
    """A SQLite database of replies in one file, which processes may share.

    It is created for its owner only if it is missing. Raise RunError if it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._usable():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            open_to_read(path).close()  # a device or pipe is refused
            self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._database.executescript(SETUP)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise RunError(
                f"{self.path}: cannot be used as a cache of replies: {why}; name another with "
                "--cache FILE, or remove it"
            ) from None

    def get(self, name: str) -> Completion | None:
        """Return the reply of this name, with cost 0; None if there is none."""
        with self._usable():
            query = "SELECT record FROM replies WHERE name = ?"
            row = self._database.execute(query, (name,)).fetchone()
            return None if row is None else replace(REPLY.validate_json(row[0]), cost_usd=0.0)

    def put(self, name: str, completion: Completion) -> None:
        """Store a reply under a name, in place of an earlier one, with keys redacted."""
        record = redact_bytes(orjson.dumps(reply_record(completion), default=dump_noun))
        with self._usable():
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (name, record))

    def close(self) -> None:
        """Close the file; the cache cannot be used afterwards."""
        self._database.close()


def reply_name(
    ref: str, identity: Any, messages: Sequence[Message], sampling: Sampling, key: str
) -> str:
    """Return 64 hex digits that identify one reply. `identity` is what else the model's replies
    depend on (`Model.identity`); the journal's key names question, sample and step."""
    read, place = without_stable(messages), CONVERSATION.sub("", key)
    parts = [1, ref, identity, sampling.model_dump(), read, place]
    data = orjson.dumps(parts, default=dump_noun, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()
