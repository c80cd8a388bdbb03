"""A run in portions of bounded size, ordered by name: what one of them holds fits in memory.

Records in the order of their names lie scattered over compressed parts: they are copied once, in
place of being read where the index says that they lie.
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
from convbench.store.jsonl import lines
from convbench.store.keys import named
from convbench.store.places import size_of
from convbench.views import messages

CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Name of reasoning in messages, as chat templates read it."""
PORTION = 16 << 20
"""Bytes of conversations in one portion, about."""
BUFFERED = 4 << 20
"""Bytes that wait in memory to be written to portions."""
STEP = 16
"""Every so many-th name is looked at to find where portions end."""
SAID = "said.jsonl"


@dataclass(frozen=True)
class Portions:
    """A run's records in runs of their own, which read judges and pictures where they lie."""

    whole: Run
    talks: Sequence[Run]
    """The newest conversations, with their questions, verdicts and credit, by conversation_id."""
    questions: Sequence[Run]
    """The questions, by example_id."""
    fields: frozenset[str]
    """Fields of messages of all conversations."""


@contextmanager
def portions(run: Run, space: Path, size: int = PORTION) -> Iterator[Portions]:
    """Spread a run over portions of about `size` bytes in a temporary folder of `space`."""
    asked = [run.path / "examples.jsonl"]
    told = run.files("conversations.jsonl")
    with TemporaryDirectory(prefix=".portions-", dir=space) as folder:
        talks = _Spread(Path(folder) / "talks", _ends(told, ("key", "conversation_id"), size))
        fields = _spread_talks(run, talks)
        for file in ("verdicts.jsonl", "advantages.jsonl"):
            for name, line in _named(run.files(file), ("conversation_id",)):
                talks.put(name, file, line)
        questions = _Spread(Path(folder) / "questions", _ends(asked, ("example_id",), size))
        for name, line in _named(asked, ("example_id",)):
            questions.put(name, "examples.jsonl", line)
        yield Portions(run, talks.runs(run), questions.runs(run), fields)


def _spread_talks(run: Run, talks: _Spread) -> frozenset[str]:
    """Put the newest conversations where they belong, each with what the policy saw of it and its
    question; return the fields of messages."""
    fields: set[str] = set()
    for told in run.told():
        conversation, name = told.conversation, told.conversation.conversation_id
        said = seen(run.manifest.protocol, conversation)
        fields.update(key for message in said for key in message)
        talks.put(name, "conversations.jsonl", told.line)
        talks.put(name, SAID, orjson.dumps([name, said]) + b"\n")
        example = run.examples[conversation.example_id]
        talks.put(name, "examples.jsonl", example.model_dump_json().encode() + b"\n")
    return frozenset(fields)


class _Spread:
    """Lines by ranges of names, each range a folder."""

    def __init__(self, folder: Path, ends: Sequence[str]) -> None:
        self._ends = ends
        self._folders = [folder / f"{number:05d}" for number in range(len(ends) + 1)]
        for one in self._folders:
            one.mkdir(parents=True)
        self._waiting: defaultdict[Path, list[bytes]] = defaultdict(list)
        self._size = 0

    def put(self, name: str, file: str, line: bytes) -> None:
        """Add a line about a name to a file of its range."""
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

    def runs(self, home: Run) -> list[Run]:
        """Return the ranges, each question in them once."""
        self._flush()
        for folder in self._folders:
            path = folder / "examples.jsonl"
            if path.exists():
                path.write_bytes(b"".join(dict.fromkeys(line for _, line in lines(path))))
        return [Run(folder, home.manifest, home) for folder in self._folders]


def _ends(files: Sequence[Path], names: tuple[str, ...], size: int) -> list[str]:
    """Return the names at which portions of about `size` bytes end."""
    count = ceil(sum(map(size_of, files)) / size)
    if count < 2:
        return []
    some = sorted(name for name, _ in islice(_named(files, names), 0, None, STEP))
    return sorted({some[len(some) * number // count] for number in range(1, count)})


def messages_of(portion: Run) -> dict[str, bytes]:
    """Return the policy's view of each conversation of a portion, as JSON."""
    found = {}
    for _, line in lines(portion.path / SAID):
        name, said = orjson.loads(line)
        found[name] = orjson.dumps(said)
    return found


def seen(protocol: ProtocolSpec, conversation: Conversation) -> list[dict[str, Any]]:
    """Return the policy's view of a conversation, with all that it thought in a channel of its
    own; an image is `[image]`."""
    told = messages(protocol, conversation, protocol.policy, replay="always")
    return [_texts(message) for message in told]


def _texts(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message["role"], "content": text_of(message["content"])}
    if "reasoning" in message:
        found[THOUGHT] = message["reasoning"].text
    if "tool_call_id" in message:
        found |= {"tool_call_id": message["tool_call_id"], "name": message.get("name", "")}
    if message.get("tool_calls"):
        found[CALLS] = [call.wire for call in message["tool_calls"]]
    return found


def _named(files: Iterable[Path], names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (what the last of these fields says, line) of every record."""
    for path in files:
        for number, line in lines(path):
            yield named(f"{path}:{number}", line, names)[-1], line
