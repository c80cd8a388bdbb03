"""Split a run into portions that fit in memory, ordered by id.

Records in the order of their ids are scattered over compressed parts. Copying them once is cheaper
than seeking to each where the index says it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from convbench.schema import Conversation, Message, ProtocolSpec, text_of
from convbench.store import Run
from convbench.store.jsonl import numbered_lines
from convbench.store.keys import read_key_fields
from convbench.store.places import size_of
from convbench.views import messages_before

CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Key of reasoning in messages, as chat templates read it."""
PORTION = 16 << 20
"""Approximate bytes of conversations in one portion."""
BUFFERED = 4 << 20
"""Bytes buffered in memory before they are written to portions."""
STEP = 16
"""Step at which ids are sampled to find where portions end."""
VIEW_FILE = "said.jsonl"


@dataclass(frozen=True)
class Portions:
    """A run's records split into smaller runs, which read judges and images from the run itself."""

    run: Run
    talks: Sequence[Run]
    """Runs with the newest conversations, their questions, verdicts and credit, ordered by
    conversation_id."""
    questions: Sequence[Run]
    """Runs with the questions, ordered by example_id."""
    fields: frozenset[str]
    """All keys that occur in the conversations' messages."""


@contextmanager
def open_portions(run: Run, space: Path, size: int = PORTION) -> Iterator[Portions]:
    """Split a run into portions of about `size` bytes, in a temporary folder in `space` that is
    deleted afterwards."""
    question_files = [run.path / "examples.jsonl"]
    conversation_files = run.record_files("conversations.jsonl")
    with TemporaryDirectory(prefix=".portions-", dir=space) as folder:
        talks = _RangeWriter(
            Path(folder) / "talks",
            _range_ends(conversation_files, ("key", "conversation_id"), size),
        )
        fields = _spread_talks(run, talks)
        for file in ("verdicts.jsonl", "advantages.jsonl"):
            for name, line in _named_lines(run.record_files(file), ("conversation_id",)):
                talks.add_line(name, file, line)
        questions = _RangeWriter(
            Path(folder) / "questions", _range_ends(question_files, ("example_id",), size)
        )
        for name, line in _named_lines(question_files, ("example_id",)):
            questions.add_line(name, "examples.jsonl", line)
        yield Portions(run, talks.range_runs(run), questions.range_runs(run), fields)


def _spread_talks(run: Run, talks: _RangeWriter) -> frozenset[str]:
    """Write the newest conversations to their portions, each with the policy's view and its
    question; return all keys of messages."""
    fields: set[str] = set()
    for stored in run.iter_stored():
        conversation, name = stored.conversation, stored.conversation.conversation_id
        view = policy_view(run.manifest.protocol, conversation)
        fields.update(key for message in view for key in message)
        talks.add_line(name, "conversations.jsonl", stored.line)
        talks.add_line(name, VIEW_FILE, orjson.dumps([name, view]) + b"\n")
        example = run.examples[conversation.example_id]
        talks.add_line(name, "examples.jsonl", example.model_dump_json().encode() + b"\n")
    return frozenset(fields)


class _RangeWriter:
    """Writer of lines to folders, one a range of ids."""

    def __init__(self, folder: Path, ends: Sequence[str]) -> None:
        self._ends = ends
        self._folders = [folder / f"{number:05d}" for number in range(len(ends) + 1)]
        for range_folder in self._folders:
            range_folder.mkdir(parents=True)
        self._waiting: defaultdict[Path, list[bytes]] = defaultdict(list)
        self._size = 0

    def add_line(self, name: str, file: str, line: bytes) -> None:
        """Add a line to a file of the range that the id falls into."""
        self._waiting[self._folders[bisect_right(self._ends, name)] / file].append(line)
        self._size += len(line)
        if self._size > BUFFERED:
            self._flush()

    def _flush(self) -> None:
        for path, waiting in self._waiting.items():
            with path.open("ab") as file:
                file.writelines(waiting)
        self._waiting.clear()
        self._size = 0

    def range_runs(self, home: Run) -> list[Run]:
        """Return the ranges as runs, with duplicate questions removed."""
        self._flush()
        for folder in self._folders:
            path = folder / "examples.jsonl"
            if path.exists():
                path.write_bytes(b"".join(dict.fromkeys(line for _, line in numbered_lines(path))))
        return [Run(folder, home.manifest, home) for folder in self._folders]


def _range_ends(files: Sequence[Path], names: tuple[str, ...], size: int) -> list[str]:
    """Return the ids at which portions of about `size` bytes end, without the last end."""
    count = ceil(sum(map(size_of, files)) / size)
    if count < 2:
        return []
    some = sorted(name for name, _ in islice(_named_lines(files, names), 0, None, STEP))
    return sorted({some[len(some) * number // count] for number in range(1, count)})


def messages_of(portion: Run) -> dict[str, bytes]:
    """Return the policy's view of each conversation of a portion as JSON, by conversation_id."""
    views = {}
    for _, line in numbered_lines(portion.path / VIEW_FILE):
        name, view = orjson.loads(line)
        views[name] = orjson.dumps(view)
    return views


def policy_view(protocol: ProtocolSpec, conversation: Conversation) -> list[dict[str, Any]]:
    """Return the messages of a conversation as the policy saw them, with all of its reasoning under
    a key of its own; an image becomes `[image]`."""
    policy_messages = messages_before(protocol, conversation, protocol.policy, replay="always")
    return [_message_fields(message) for message in policy_messages]


def _message_fields(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message["role"], "content": text_of(message["content"])}
    if "reasoning" in message:
        fields[THOUGHT] = message["reasoning"].text
    if "tool_call_id" in message:
        fields |= {"tool_call_id": message["tool_call_id"], "name": message.get("name", "")}
    if message.get("tool_calls"):
        fields[CALLS] = [call.wire for call in message["tool_calls"]]
    return fields


def _named_lines(files: Iterable[Path], names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (value of the last of these fields, line) of every record in the files."""
    for path in files:
        for number, line in numbered_lines(path):
            yield read_key_fields(f"{path}:{number}", line, names)[-1], line
