"""Drawn conversations for people elsewhere, and their labels back.

`export` writes JSON lines: `key`, `question`, `transcript` and an empty `scores` for each metric,
blind. `import` reads the same lines filled in, or CSV with a column a metric: `key` or
`conversation_id`, `rater`, scores, `note`, `skipped`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convbench.errors import DataError, RunError
from convbench.judge.gold.queue import Queue
from convbench.judge.gold.records import draws, family, keep_labels, label, metrics
from convbench.regular import open_to_read
from convbench.schema.gold import GoldLabel
from convbench.store import Run
from convbench.store.jsonl import write_named
from convbench.views import transcript

COLUMNS = ("key", "conversation_id", "rater", "note", "skipped", "scores", "question", "transcript")
TRUE = ("true", "yes", "1")


def export(run: Run, file: Path, rater: str = "") -> int:
    """Write what waits for a label (of this person), blind, and return how many."""
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
            rows.append({"key": one.key, "rater": rater, "question": question,
                         "transcript": said, "scores": scores, "note": ""})  # fmt: skip
    write_named(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return len(rows)


def import_labels(run: Run, file: Path) -> list[GoldLabel]:
    """Read labels of drawn conversations and keep them all, or none.

    Raises DataError naming file, line, what was found and what was expected.
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
            continue  # a line that nobody has filled in yet
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
