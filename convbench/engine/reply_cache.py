"""Cache of replies shared by runs, keyed by everything that a reply depends on (`--cache`).

A reply is reused only for the same model at the same address with the same settings, the same
messages and sampling, and the same question, sample and step. So samples stay independent, and a
repeated run gets the same replies. Replies of models that run here are not cached: their weights
may have changed, and they cost nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from convbench.engine.journal import dump_noun, read_reply_record, reply_record
from convbench.errors import RunError
from convbench.schema import Completion, Message, Sampling, without_stable
from convbench.util.redact import redact_bytes
from convbench.util.regular import open_to_read

VERSION = 1
"""Version of the names of replies; raised if the same name would mean something else."""
CONVERSATION = re.compile(r"\b[0-9a-f]{20}\b")
"""A conversation's id in a call's key, as in a judge's: it belongs to one run, and the
conversation's text is in the messages."""


class ReplyCache:
    """A SQLite database of replies in one file, which processes may share.

    It is created, readable by its owner only, if it is missing. Raise RunError if it cannot be
    used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                open_to_read(path).close()  # a device or pipe is refused
            self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS replies (name TEXT PRIMARY KEY, record BLOB) "
                "WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise self._cache_error(error) from None

    def get(self, name: str) -> Completion | None:
        """Return the reply of this name, with cost 0; None if there is none."""
        try:
            query = "SELECT record FROM replies WHERE name = ?"
            row = self._database.execute(query, (name,)).fetchone()
            return None if row is None else replace(read_reply_record(row[0]), cost_usd=0.0)
        except sqlite3.Error as error:
            raise self._cache_error(error) from None
        except ValueError:
            return None

    def put(self, name: str, completion: Completion) -> None:
        """Store a reply under a name, in place of an earlier one, with keys redacted."""
        record = redact_bytes(orjson.dumps(reply_record(completion), default=dump_noun))
        try:
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (name, record))
        except sqlite3.Error as error:
            raise self._cache_error(error) from None

    def close(self) -> None:
        """Close the file; the cache cannot be used afterwards."""
        self._database.close()

    def _cache_error(self, error: Exception) -> RunError:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        return RunError(
            f"{self.path}: cannot be used as a cache of replies: {why}; name another with "
            "--cache FILE, or remove it"
        )


def reply_name(
    ref: str,
    identity: Mapping[str, Any],
    messages: Sequence[Message],
    sampling: Sampling,
    key: str,
) -> str:
    """Return 64 hex digits that identify one reply.

    `identity` is what else the model's replies depend on (`Model.identity`); `key` is the journal's
    key, which names question, sample and step.
    """
    read = without_stable(messages)
    data = orjson.dumps(
        [VERSION, ref, identity, sampling.model_dump(), read, CONVERSATION.sub("", key)],
        default=dump_noun,
        option=orjson.OPT_SORT_KEYS,
    )
    return hashlib.sha256(data).hexdigest()
