"""The labelling queue: what one person is to label next, blind.

A conversation goes by a key that tells nothing; policy, run, judge, temperature and other people's
labels are not in what is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convbench.errors import DataError, RunError
from convbench.judge.gold.records import draws, keep_labels, label, labels, metrics, rubric
from convbench.judge.gold.units import gold_of
from convbench.schema import JudgeSpec
from convbench.schema.gold import Draw, GoldLabel
from convbench.store import Run


@dataclass(frozen=True)
class Waiting:
    """One conversation of the queue."""

    key: str
    conversation_id: str
    draw: Draw
    mine: GoldLabel | None
    """What this person said of it before."""


@dataclass(frozen=True)
class Queue:
    """The queue of a run. Draws and labels are read anew each time: others label too."""

    run: Run

    def waiting(self, rater: str) -> list[Waiting]:
        """Return what this person may label, in order: what has fewest labels of others first
        within its draw, and nothing that enough others labelled."""
        given = labels(self.run)
        found: dict[str, tuple[int, int, Waiting]] = {}
        for number, draw in enumerate(draws(self.run)):
            for one in draw.drawn:
                name = one.conversation_id
                others = sum(
                    who == name and by != rater and said.skipped is None
                    for (who, by), said in given.items()
                )
                mine = given.get((name, rater))
                if name in found or mine is not None or others >= draw.raters:
                    continue
                waiting = Waiting(self.key(name), name, draw, mine)
                found[name] = (number, -others, waiting)
        return [one for _, _, one in sorted(found.values(), key=lambda entry: entry[:2])]

    def progress(self, rater: str = "") -> dict[str, Any]:
        """Return how far the queue is: drawn, done, skipped, by person, agreement."""
        given, counts = labels(self.run), {"drawn": 0, "done": 0, "skipped": 0}
        people: dict[str, dict[str, int]] = {}
        for (_, name), one in given.items():
            mine = people.setdefault(name, {"scored": 0, "skipped": 0})
            mine["skipped" if one.skipped is not None else "scored"] += 1
        wanted: dict[str, int] = {}
        for draw in draws(self.run):
            for item in draw.drawn:
                name = item.conversation_id
                wanted[name] = max(draw.raters, wanted.get(name, 0))
        for name, times in wanted.items():
            said = [x for (talk, _), x in given.items() if talk == name]
            counts["drawn"] += 1
            counts["done"] += sum(x.skipped is None for x in said) >= times
            counts["skipped"] += bool(said) and all(x.skipped is not None for x in said)
        return {
            **counts,
            "left": len(self.waiting(rater)) if rater else None,
            "mine": people.get(rater, {"scored": 0, "skipped": 0}),
            "raters": [{"rater": name, **some} for name, some in sorted(people.items())],
            "agreement": self.agreement(),
        }

    def agreement(self) -> list[dict[str, Any]]:
        """Return how far people agree, a row a judge that was drawn for."""
        found = []
        for mark, name in {draw.fingerprint: draw.judge for draw in draws(self.run)}.items():
            spec = rubric(self.run, mark)
            value, both = gold_of(self.run, mark).agreement(spec.headline)
            found.append({"judge": name, "metric": spec.headline, "alpha": value,
                          "both": both})  # fmt: skip
        return found

    def form(self, draw: Draw) -> list[dict[str, Any]]:
        """Return what is scored."""
        return metrics(self.spec(draw))

    def spec(self, draw: Draw) -> JudgeSpec:
        """Return the rubric of a draw."""
        return rubric(self.run, draw.fingerprint)

    def key(self, conversation_id: str) -> str:
        """Return the key that stands for a conversation and tells nothing of it."""
        text = f"{self.run.manifest.id}\0{conversation_id}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find(self, key: str) -> tuple[str, Draw]:
        """Return the conversation of a key, with the newest draw that took it. RunError where
        there is none."""
        for draw in reversed(draws(self.run)):
            for one in draw.drawn:
                if self.key(one.conversation_id) == key:
                    return one.conversation_id, draw
        raise RunError(f"{key!r:.40}: found no such conversation in the queue")

    def keep(self, said: Mapping[str, Any]) -> GoldLabel:
        """Keep what a person said: key, rater, and scores with a note, or the reason for none.

        Raises DataError for what is no label of this rubric.
        """
        key = said.get("key")
        if not isinstance(key, str):
            raise DataError("key: expected that of the conversation")
        name, draw = self.find(key)
        found = label(self.spec(draw), name, said, "label", blind=True)
        keep_labels(self.run, [found])
        return found

    def take_back(self, rater: str) -> Waiting | None:
        """Return the conversation that this person labelled last, to say it again; None where
        there is none."""
        given = [x for (_, who), x in labels(self.run).items() if who == rater]
        if not given:
            return None
        last = given[-1]
        key = self.key(last.conversation_id)
        return Waiting(key, last.conversation_id, self.find(key)[1], last)
