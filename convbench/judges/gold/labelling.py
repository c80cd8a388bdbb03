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
from convbench.judges.gold.labels import (
    form_metrics,
    gold_of,
    judge_rubric,
    keep_labels,
    make_label,
    newest_labels,
    read_draws,
    run_family,
)
from convbench.schema import JudgeSpec
from convbench.schema.gold import GoldDraw, GoldLabel
from convbench.store import Run
from convbench.store.jsonl import write_user_file
from convbench.util.regular import open_to_read
from convbench.views import transcript


@dataclass(frozen=True)
class QueueEntry:
    """One conversation of the queue."""

    key: str
    conversation_id: str
    draw: GoldDraw
    own_label: GoldLabel | None
    """This person's earlier label of it; None without one."""


@dataclass(frozen=True)
class LabelQueue:
    """The queue of a run. Draws and labels are read anew at each call, since others label too."""

    run: Run

    def waiting_entries(self, rater: str) -> list[QueueEntry]:
        """Return the conversations that this person may label: those drawn that this person has no
        label of, and that fewer others scored than the draw asks for.

        They are in order of the draws, oldest first, and within a draw those with most labels
        first. Each occurs once. Empty if nothing is drawn or waits.
        """
        all_labels = newest_labels(self.run)
        entries: dict[str, tuple[int, int, QueueEntry]] = {}
        for number, draw in enumerate(read_draws(self.run)):
            for item in draw.drawn:
                name = item.conversation_id
                others = sum(
                    who == name and by != rater and gold_label.skipped is None
                    for (who, by), gold_label in all_labels.items()
                )
                mine = all_labels.get((name, rater))
                if name in entries or mine is not None or others >= draw.raters:
                    continue
                waiting = QueueEntry(self.conversation_key(name), name, draw, mine)
                entries[name] = (number, -others, waiting)
        return [item for _, _, item in sorted(entries.values(), key=lambda entry: entry[:2])]

    def progress(self, rater: str = "") -> dict[str, Any]:
        """Return the progress of the queue: the numbers of conversations `drawn`, `done` (enough
        labels) and `skipped` (labelled, but by nobody with scores), `left` (waiting for this
        person; None without a name), and `mine`, `raters` and `agreement`.

        `mine` is `{"scored": …, "skipped": …}` of this person; `raters` has the same counts for
        each person with `rater`, sorted by name; `agreement` is as from `agreement()`.
        """
        all_labels, counts = newest_labels(self.run), {"drawn": 0, "done": 0, "skipped": 0}
        people: dict[str, dict[str, int]] = {}
        for (_, name), gold_label in all_labels.items():
            mine = people.setdefault(name, {"scored": 0, "skipped": 0})
            mine["skipped" if gold_label.skipped is not None else "scored"] += 1
        needed: dict[str, int] = {}
        for draw in read_draws(self.run):
            for item in draw.drawn:
                name = item.conversation_id
                needed[name] = max(draw.raters, needed.get(name, 0))
        for name, times in needed.items():
            answers = [x for (talk, _), x in all_labels.items() if talk == name]
            counts["drawn"] += 1
            counts["done"] += sum(x.skipped is None for x in answers) >= times
            counts["skipped"] += bool(answers) and all(x.skipped is not None for x in answers)
        return {
            **counts,
            "left": len(self.waiting_entries(rater)) if rater else None,
            "mine": people.get(rater, {"scored": 0, "skipped": 0}),
            "raters": [{"rater": name, **some} for name, some in sorted(people.items())],
            "agreement": self.agreement(),
        }

    def agreement(self) -> list[dict[str, Any]]:
        """Return people's agreement, a dict for each judge with a draw: `judge`, `metric` (its
        headline), `alpha` (Krippendorff's, or None) and `both` (number of conversations that
        several people scored).

        Empty without draws. Raise RunError if a judge's spec is missing.
        """
        rows = []
        for mark, name in {draw.fingerprint: draw.judge for draw in read_draws(self.run)}.items():
            spec = judge_rubric(self.run, mark)
            value, both = gold_of(self.run, mark).rater_agreement(spec.headline_metric)
            rows.append(
                {"judge": name, "metric": spec.headline_metric, "alpha": value, "both": both}
            )
        return rows

    def form_fields(self, draw: GoldDraw) -> list[dict[str, Any]]:
        """Return a dict for each metric that a draw's rubric asks people to score, in order.

        Keys: `name`, `label`, `about`, `lowest`, `highest`, `needed`, `weight`.

        Raise RunError if no run of the family has the draw's judge.
        """
        return form_metrics(self.draw_rubric(draw))

    def draw_rubric(self, draw: GoldDraw) -> JudgeSpec:
        """Return the spec of the judge that a draw is for, which is the rubric people score by.

        Raise RunError if no run of the family has it.
        """
        return judge_rubric(self.run, draw.fingerprint)

    def conversation_key(self, conversation_id: str) -> str:
        """Return the key of a conversation, 16 hex digits of a hash, which reveals nothing about
        it."""
        text = f"{self.run.manifest.id}\0{conversation_id}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find_conversation(self, key: str) -> tuple[str, GoldDraw]:
        """Return (conversation_id, newest draw that has it) of a key. Raises RunError for an
        unknown key."""
        for draw in reversed(read_draws(self.run)):
            for item in draw.drawn:
                if self.conversation_key(item.conversation_id) == key:
                    return item.conversation_id, draw
        raise RunError(f"{key!r:.40}: found no such conversation in the queue")

    def keep_label(self, answer: Mapping[str, Any]) -> GoldLabel:
        """Store and return a person's blind label: `answer` has `key`, `rater`, and `scores` with a
        `note`, or the reason for skipping in `skipped`.

        Raise DataError for an invalid label, RunError for an unknown key.
        """
        key = answer.get("key")
        if not isinstance(key, str):
            raise DataError("key: expected that of the conversation")
        name, draw = self.find_conversation(key)
        gold_label = make_label(self.draw_rubric(draw), name, answer, "label", blind=True)
        keep_labels(self.run, [gold_label])
        return gold_label

    def last_entry(self, rater: str) -> QueueEntry | None:
        """Return the entry of the conversation that this person labelled last, with the newest
        label, to label it again; None without one.

        The order is that of each conversation's first label: labelling one again does not change
        it.
        """
        own_labels = [x for (_, who), x in newest_labels(self.run).items() if who == rater]
        if not own_labels:
            return None
        last = own_labels[-1]
        key = self.conversation_key(last.conversation_id)
        return QueueEntry(key, last.conversation_id, self.find_conversation(key)[1], last)


COLUMNS = ("key", "conversation_id", "rater", "note", "skipped", "scores", "question", "transcript")
TRUE = ("true", "yes", "1")


def export_queue(run: Run, file: Path, rater: str = "") -> int:
    """Write the conversations that wait for a label (of this person, or without a name of anybody)
    to a JSON Lines file, blind, and return how many.

    Each line has `key`, `rater`, `question`, `transcript`, `scores` (each metric as null) and an
    empty `note`. An existing file is overwritten.
    """
    queue, texts = LabelQueue(run), {}
    waiting = {entry.conversation_id: entry for entry in queue.waiting_entries(rater)}
    for member in run_family(run):
        for talk in member.conversations():
            if talk.conversation_id in waiting:
                example = member.examples[talk.example_id]
                texts[talk.conversation_id] = (example.question, transcript(talk))
    rows = []
    for name, entry in waiting.items():
        if name in texts:
            question, text = texts[name]
            scores = {m["name"]: None for m in queue.form_fields(entry.draw)}
            rows.append(
                {
                    "key": entry.key,
                    "rater": rater,
                    "question": question,
                    "transcript": text,
                    "scores": scores,
                    "note": "",
                }
            )
    write_user_file(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return len(rows)


def import_labels(run: Run, file: Path) -> list[GoldLabel]:
    """Read labels of drawn conversations from a file (CSV by the ending `.csv`, else JSON Lines),
    store them all or none, and return them. Lines without scores and reason for skipping are
    ignored.

    Raise DataError with file and line for an invalid line or a conversation that was not drawn, and
    for a file without a label.
    """
    queue, imported, seen = LabelQueue(run), [], set()
    known = {item.conversation_id: draw for draw in read_draws(run) for item in draw.drawn}
    for number, row in _iter_rows(file):
        where = f"{file}:{number}"
        try:
            name = row.get("conversation_id")
            name = str(name) if name else queue.find_conversation(str(row.get("key") or ""))[0]
        except RunError as error:
            raise DataError(f"{where}: {error}; expected a key of gold export") from None
        if name not in known:
            raise DataError(
                f"{where}: {name!r:.60} was not drawn; expected a drawn conversation, since "
                "others have no known probability: convbench gold RUN --draw N"
            )
        spec = queue.draw_rubric(known[name])
        scores = _parse_scores(row, {str(m["name"]) for m in form_metrics(spec)}, where)
        skipped = str(row.get("skipped") or "").strip() or None
        if not scores and skipped is None:
            continue  # a line that is not filled in yet
        answer = {**row, "scores": scores, "skipped": skipped}
        blind = str(row.get("blind", "true")).strip().lower() in TRUE
        gold_label = make_label(spec, name, answer, where, blind=blind)
        if (name, gold_label.rater) in seen:
            raise DataError(
                f"{where}: rater {gold_label.rater!r} labels {name} twice; expected once"
            )
        seen.add((name, gold_label.rater))
        imported.append(gold_label)
    if not imported:
        raise DataError(f"{file}: found no label; expected lines with scores, or skipped")
    keep_labels(run, imported)
    return imported


def _parse_scores(row: Mapping[str, Any], known: set[str], where: str) -> dict[str, float]:
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


def _iter_rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
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
                parsed = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{file}:{number}: not valid JSON: {error}") from None
            if not isinstance(parsed, dict):
                raise DataError(f"{file}:{number}: expected an object")
            yield number, parsed
