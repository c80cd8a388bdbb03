"""The queue of conversations that people label blind, and its export and import as files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.errors import DataError, RunError
from convbench.judge.gold.labels import (
    draws,
    family,
    gold_of,
    keep_labels,
    label,
    labels,
    metrics,
    rubric,
)
from convbench.regular import open_to_read
from convbench.schema import JudgeSpec
from convbench.schema.gold import Draw, GoldLabel
from convbench.store import Run
from convbench.store.jsonl import write_named
from convbench.views import transcript


@dataclass(frozen=True)
class Waiting:
    """One conversation of the queue."""

    key: str
    conversation_id: str
    draw: Draw
    mine: GoldLabel | None
    """This person's earlier label of it; None without one."""


@dataclass(frozen=True)
class Queue:
    """The queue of a run. Draws and labels are read anew at each call, since others label too."""

    run: Run

    def waiting(self, rater: str) -> list[Waiting]:
        """Return the conversations that this person may label, by draw, and within a draw those
        closest to their number of raters first; without those that have enough labels."""
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
        """Return the progress of the queue: counts of drawn, done, skipped and left, counts by
        person, and agreement."""
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
        """Return people's agreement (alpha), one row for each judge with a draw."""
        found = []
        for mark, name in {draw.fingerprint: draw.judge for draw in draws(self.run)}.items():
            spec = rubric(self.run, mark)
            value, both = gold_of(self.run, mark).agreement(spec.headline)
            found.append({"judge": name, "metric": spec.headline, "alpha": value, "both": both})
        return found

    def form(self, draw: Draw) -> list[dict[str, Any]]:
        """Return the form of a draw: the metrics to score."""
        return metrics(self.spec(draw))

    def spec(self, draw: Draw) -> JudgeSpec:
        """Return the rubric of a draw."""
        return rubric(self.run, draw.fingerprint)

    def key(self, conversation_id: str) -> str:
        """Return the key of a conversation, which reveals nothing about it."""
        text = f"{self.run.manifest.id}\0{conversation_id}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find(self, key: str) -> tuple[str, Draw]:
        """Return (conversation_id, newest draw that has it) of a key. Raises RunError for an
        unknown key."""
        for draw in reversed(draws(self.run)):
            for one in draw.drawn:
                if self.key(one.conversation_id) == key:
                    return one.conversation_id, draw
        raise RunError(f"{key!r:.40}: found no such conversation in the queue")

    def keep(self, said: Mapping[str, Any]) -> GoldLabel:
        """Store and return a person's label: key, rater, and scores with a note, or the reason for
        skipping.

        Raises DataError for an invalid label.
        """
        key = said.get("key")
        if not isinstance(key, str):
            raise DataError("key: expected that of the conversation")
        name, draw = self.find(key)
        found = label(self.spec(draw), name, said, "label", blind=True)
        keep_labels(self.run, [found])
        return found

    def take_back(self, rater: str) -> Waiting | None:
        """Return the entry that this person labelled last, to label it again; None without one."""
        given = [x for (_, who), x in labels(self.run).items() if who == rater]
        if not given:
            return None
        last = given[-1]
        key = self.key(last.conversation_id)
        return Waiting(key, last.conversation_id, self.find(key)[1], last)


COLUMNS = ("key", "conversation_id", "rater", "note", "skipped", "scores", "question", "transcript")
TRUE = ("true", "yes", "1")


def export(run: Run, file: Path, rater: str = "") -> int:
    """Write the conversations that wait for a label (of this person) to a file, blind, and return
    how many."""
    queue, found = Queue(run), {}
    wanted = {one.conversation_id: one for one in queue.waiting(rater)}
    for member in family(run):
        for talk in member.conversations():
            if talk.conversation_id in wanted:
                example = member.examples[talk.example_id]
                found[talk.conversation_id] = (example.question, transcript(talk))
    rows = []
    for name, one in wanted.items():
        if name in found:
            question, said = found[name]
            scores = {m["name"]: None for m in queue.form(one.draw)}
            rows.append(
                {
                    "key": one.key,
                    "rater": rater,
                    "question": question,
                    "transcript": said,
                    "scores": scores,
                    "note": "",
                }
            )
    write_named(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return len(rows)


def import_labels(run: Run, file: Path) -> list[GoldLabel]:
    """Read labels of drawn conversations from a file, store them all or none, and return them.

    Raises DataError with file, line, what was found and what was expected.
    """
    queue, found, seen = Queue(run), [], set()
    known = {one.conversation_id: draw for draw in draws(run) for one in draw.drawn}
    for number, row in _rows(file):
        where = f"{file}:{number}"
        try:
            name = row.get("conversation_id")
            name = str(name) if name else queue.find(str(row.get("key") or ""))[0]
        except RunError as error:
            raise DataError(f"{where}: {error}; expected a key of gold export") from None
        if name not in known:
            raise DataError(
                f"{where}: {name!r:.60} was not drawn; expected a drawn conversation, since "
                "others have no known probability: convbench gold RUN --draw N"
            )
        spec = queue.spec(known[name])
        scores = _scores(row, {str(m["name"]) for m in metrics(spec)}, where)
        skipped = str(row.get("skipped") or "").strip() or None
        if not scores and skipped is None:
            continue  # a line that is not filled in yet
        said = {**row, "scores": scores, "skipped": skipped}
        blind = str(row.get("blind", "true")).strip().lower() in TRUE
        made = label(spec, name, said, where, blind=blind)
        if (name, made.rater) in seen:
            raise DataError(f"{where}: rater {made.rater!r} labels {name} twice; expected once")
        seen.add((name, made.rater))
        found.append(made)
    if not found:
        raise DataError(f"{file}: found no label; expected lines with scores, or skipped")
    keep_labels(run, found)
    return found


def _scores(row: Mapping[str, Any], known: set[str], where: str) -> dict[str, float]:
    """Return the scores of a row, in `scores` or in columns of their own. Raises DataError."""
    inside = row.get("scores")
    if inside is not None and not isinstance(inside, Mapping):
        raise DataError(f"{where}: scores: found {inside!r:.60}; expected numbers by metric")
    flat = {k: v for k, v in row.items() if k not in COLUMNS and k != "blind"}
    out = {}
    for name, value in {**flat, **(inside or {})}.items():
        if value is None or str(value).strip() == "":
            continue
        if name not in known:
            raise DataError(
                f"{where}: found column {name!r:.60}; expected {', '.join(sorted(known))}"
            )
        try:
            out[name] = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            raise DataError(f"{where}: {name} is {value!r:.60}; expected a number") from None
    return out


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line number, row) of a CSV or JSONL file. Raises DataError."""
    try:
        with open_to_read(file) as opened:
            text = opened.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; expected labels") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: not UTF-8; save the labels as UTF-8 text") from None
    if file.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        try:
            for row in reader:
                if None in row:
                    raise DataError(f"{file}:{reader.line_num}: found more cells than the header")
                yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"{file}:{reader.line_num + 1}: not valid CSV: {error}") from None
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{file}:{number}: not valid JSON: {error}") from None
            if not isinstance(found, dict):
                raise DataError(f"{file}:{number}: expected an object")
            yield number, found
