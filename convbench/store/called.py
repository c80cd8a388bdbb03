"""What a run holds of conversations that are asked for by their ids: nothing else is parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from convbench.schema import Conversation, Verdict
from convbench.store.jsonl import lines, placed
from convbench.store.keys import named
from convbench.store.records import Records
from convbench.store.run import Run
from convbench.store.shape import checked, one_value

TALK, VERDICT = ("key", "conversation_id"), ("conversation_id", "judge")
"""What stands first in a line of each."""
Wanted = Callable[[str], bool]
"""Whether a conversation of this id is asked for."""


class Spot(NamedTuple):
    """A conversation's id, and where its record lies."""

    name: str
    records: Records[Conversation]
    start: int
    """First byte of its line (`store.places`)."""
    length: int
    mark: int
    """Hash of its key and id."""

    def read(self) -> Conversation:
        """Return the conversation. Raises RunError for a damaged one."""
        found = self.records.read(self.start, self.length)
        one_value(self.where, found, TALK, self.mark)
        return found

    @property
    def where(self) -> str:
        """File and byte, for messages."""
        return f"{self.records.path}: byte {self.start}"


def conversations(run: Run, wanted: Wanted) -> list[Spot]:
    """Return where conversations lie; of each key the newest counts, whatever its id."""
    found: dict[str, Spot] = {}
    for path in run.files("conversations.jsonl"):
        records = Records(path, Conversation)
        for number, start, line in placed(path):
            key, name = texts = named(f"{path}:{number}", line, TALK)
            if wanted(name):
                found[key] = Spot(name, records, start, len(line), hash(texts))
            else:
                found.pop(key, None)
    return list(found.values())


def verdicts(run: Run, wanted: Wanted) -> list[Verdict]:
    """Return the newest verdict of each judge on conversations. Raises RunError for a damaged
    one."""
    found: dict[tuple[str, ...], Verdict] = {}
    for path in run.files("verdicts.jsonl"):
        for number, line in lines(path):
            where = f"{path}:{number}"
            texts = named(where, line, VERDICT)
            if wanted(texts[0]):
                found[texts] = checked(where, line, Verdict)
                one_value(where, found[texts], VERDICT, hash(texts))
    return list(found.values())
