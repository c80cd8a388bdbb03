"""What a run holds of conversations that are asked for by their ids: nothing else is parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from convbench.schema import Conversation, Verdict
from convbench.store.jsonl import lines, placed
from convbench.store.keys import named
from convbench.store.places import Places
from convbench.store.run import Run
from convbench.store.shape import checked

Wanted = Callable[[str], bool]
"""Whether a conversation of this id is asked for."""


class Spot(NamedTuple):
    """A conversation's id, and where its record lies."""

    name: str
    places: Places
    start: int
    """First byte of its line (`store.places`)."""
    length: int

    def read(self) -> Conversation:
        """Return the conversation. Raises RunError for a damaged one."""
        return checked(self.where, self.places.read(self.start, self.length), Conversation)

    @property
    def where(self) -> str:
        """File and byte, for messages."""
        return f"{self.places.path}: byte {self.start}"


def conversations(run: Run, wanted: Wanted) -> list[Spot]:
    """Return where conversations lie; of each key the newest counts, whatever its id."""
    found: dict[str, Spot] = {}
    for path in run.files("conversations.jsonl"):
        places = Places(path)
        for number, start, line in placed(path):
            key, name = named(f"{path}:{number}", line, ("key", "conversation_id"))
            if wanted(name):
                found[key] = Spot(name, places, start, len(line))
            else:
                found.pop(key, None)
    return list(found.values())


def verdicts(run: Run, wanted: Wanted) -> list[Verdict]:
    """Return the newest verdict of each judge on conversations."""
    found: dict[tuple[str, str], Verdict] = {}
    for path in run.files("verdicts.jsonl"):
        for number, line in lines(path):
            where = f"{path}:{number}"
            name, judge = named(where, line, ("conversation_id", "judge"))
            if wanted(name):
                found[name, judge] = checked(where, line, Verdict)
    return list(found.values())
