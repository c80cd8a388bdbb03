"""The labelling queue as the page gets it: one conversation at a time, blind."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from convbench.errors import DataError
from convbench.judge.gold.queue import Queue, Waiting
from convbench.judge.gold.records import draws, home
from convbench.schema.gold import RATER
from convbench.view.index import Index
from convbench.view.talk import talk

SAID = ("speaker", "policy", "finish", "rounds", "reasoning", "parts", "index")
"""What of a turn people see: what was said, and by whom."""
MINE = ("scores", "note", "skipped")
"""What of a label comes back to who gave it."""


class Labelling:
    """What the server answers of the queues of its runs."""

    def __init__(self, index: Index) -> None:
        self.index = index
        homes = {str(home(run).path.resolve()): home(run) for run in index.runs}
        self.queues = [Queue(run) for run in homes.values()]

    @property
    def drawn(self) -> int:
        """How many conversations wait or waited in the queues."""
        return sum(
            len({one.conversation_id for draw in draws(queue.run) for one in draw.drawn})
            for queue in self.queues
        )

    def next(self, request: web.Request) -> dict[str, Any]:
        """Return what this person is to label next, and how far the queues are. `back=1`: what
        they said last, to say it again."""
        rater = _rater(request.query.get("rater"))
        back = request.query.get("back") == "1"
        item = None
        for queue in self.queues:
            found = queue.take_back(rater) if back else next(iter(queue.waiting(rater)), None)
            if found is not None:
                item = self._item(queue, found)
                break
        return {
            "item": item,
            "progress": [_unnamed(queue.progress(rater)) for queue in self.queues],
        }

    def keep(self, said: Any) -> dict[str, Any]:
        """Keep what a person said of the conversation of a key."""
        if not isinstance(said, dict) or not isinstance(said.get("key"), str):
            raise DataError("expected a JSON object with key, rater, scores or skipped")
        for queue in self.queues:
            if any(said["key"] == key for key in _keys(queue)):
                queue.keep(said)
                return {"kept": True}
        raise DataError(f"key: {said['key']!r:.40} is not in the queue")

    def _item(self, queue: Queue, found: Waiting) -> dict[str, Any]:
        shown = talk(self.index, found.conversation_id)
        mine = found.mine
        return {
            "key": found.key,
            "question": {k: shown["question"][k] for k in ("text", "choices")},
            "reference": shown["reference"],
            "turns": [{k: turn[k] if k in SAID else None for k in turn} for turn in shown["turns"]],
            "metrics": queue.form(found.draw),
            "mine": None
            if mine is None
            else mine.model_dump(include={"scores", "note", "skipped"}),
        }


def _unnamed(progress: dict[str, Any]) -> dict[str, Any]:
    """Return it without the names of judges."""
    rows = [{k: v for k, v in row.items() if k != "judge"} for row in progress["agreement"]]
    return {**progress, "agreement": rows}


def _keys(queue: Queue) -> set[str]:
    return {queue.key(one.conversation_id) for draw in draws(queue.run) for one in draw.drawn}


def _rater(text: str | None) -> str:
    name = (text or "").strip()
    if not 0 < len(name) <= RATER or not name.isprintable():
        raise DataError(f"rater: expected a name of 1 to {RATER} characters")
    return name
