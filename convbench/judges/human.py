"""Judge `human:FILE`: people's scores of conversations, from a file.

The file is CSV (with a header) or JSON lines. A row has `conversation_id`, scores in columns
named like the spec's metrics (the reward's metric is required, others are optional), and may have
`rater` and `note`. The scores of several raters are averaged metric by metric; those of each rater
are in the verdict's details.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.errors import DataError
from convbench.schema import JudgeSpec
from convbench.schema.judge import OVERALL
from convbench.util.regular import open_to_read

_COLUMNS = ("conversation_id", "rater", "note")


@dataclass(frozen=True, slots=True)
class RaterLabel:
    """One rater's scores of one conversation."""

    rater: str
    scores: Mapping[str, float]
    note: str


@dataclass(frozen=True, slots=True)
class LabelFile:
    """All labels of a file, by conversation_id."""

    file: Path
    digest: str
    """Hash of the file's bytes; files with different labels are different judges."""
    rows: Mapping[str, tuple[RaterLabel, ...]]

    def check_known(self, known: Collection[str]) -> None:
        """Raise DataError if a label is of a conversation that is not among `known`."""
        unknown = sorted(set(self.rows) - set(known))
        if unknown:
            raise DataError(
                f"{self.file}: {len(unknown)} conversation_ids are not in this run, e.g. "
                f"{unknown[0]!r}; expected ids of the run's conversations"
            )

    def conversation_scores(
        self, conversation_id: str
    ) -> tuple[dict[str, float], dict[str, Any], str]:
        """Return the labels of a conversation: (mean score by metric, details, all notes joined by
        " | ").

        A mean is over the raters who scored the metric. The details are `{"raters": [{"rater": …,
        "scores": …, "note": …}]}`. Raise KeyError for a conversation without a label.
        """
        labels = self.rows[conversation_id]
        metrics = dict.fromkeys(name for label in labels for name in label.scores)
        mean = {}
        for name in metrics:
            values = [label.scores[name] for label in labels if name in label.scores]
            mean[name] = math.fsum(values) / len(values)
        details = {
            "raters": [
                {"rater": label.rater, "scores": dict(label.scores), "note": label.note}
                for label in labels
            ]
        }
        return mean, details, " | ".join(label.note for label in labels if label.note)


def read_labels(path: Path, spec: JudgeSpec) -> LabelFile:
    """Return the labels of a CSV or JSON Lines file, by its ending; a rater without a name is named
    by the number of the label among those of its conversation.

    Raise DataError, with the line, for a file that cannot be read or has no label, and for a row
    with an unknown column, a score out of range, without a score that the reward needs, or by a
    rater who scored the conversation before.
    """
    try:
        with open_to_read(path) as file:
            data = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; expected labels") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8; save the labels as UTF-8 text") from None
    rows: dict[str, list[RaterLabel]] = {}
    for number, row in _iter_rows(path, text):
        name = str(row.get("conversation_id") or "").strip()
        if not name:
            raise DataError(f"{path}:{number}: no conversation_id; expected one in every row")
        labels = rows.setdefault(name, [])
        label = _parse_label(f"{path}:{number}", row, spec, len(labels) + 1)
        if any(other.rater == label.rater for other in labels):
            raise DataError(
                f"{path}:{number}: rater {label.rater!r} scored {name} twice; expected one row "
                "for each conversation and rater"
            )
        labels.append(label)
    if not rows:
        raise DataError(f"{path}: found no labels; expected rows of conversation_id and scores")
    digest = hashlib.sha256(data).hexdigest()[:16]
    return LabelFile(path, digest, {name: tuple(labels) for name, labels in rows.items()})


def _iter_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line number, row) of CSV or JSON lines, by the file's ending."""
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(text, newline=""))
        try:
            for row in reader:
                if more := row.pop(None, []):
                    raise DataError(
                        f"{path}:{reader.line_num}: found {len(row) + len(more)} cells; expected "
                        f"{len(row)}, as in the header (quote a cell that has a comma)"
                    )
                yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num + 1}: not valid CSV: {error}") from None
    elif path.suffix.lower() in (".jsonl", ".ndjson"):
        # Only "\n" ends a line: a JSON text may contain U+2028 and the like.
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield number, _parse_line(path, number, line)
    else:
        raise DataError(f"{path}: found ending {path.suffix!r}; expected .csv or .jsonl")


def _parse_line(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}:{number}: not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise DataError(f"{path}:{number}: found {type(row).__name__}; expected an object")
    return row


def _parse_label(where: str, row: Mapping[str, Any], spec: JudgeSpec, count: int) -> RaterLabel:
    names = [metric.name for metric in spec.metrics]
    unknown = [str(key) for key in row if key not in names and key not in _COLUMNS]
    if unknown:
        raise DataError(
            f"{where}: unknown column {unknown[0]!r}; expected {', '.join((*_COLUMNS, *names))}"
        )
    scores = {
        name: _parse_score(where, name, row[name], spec)
        for name in names
        if row.get(name) is not None and str(row[name]).strip()
    }
    missing = first_missing(spec, scores)
    if missing:
        raise DataError(f"{where}: no {missing}; expected one, since the reward is made of it")
    rater, note = (str(row.get(key) or "").strip() for key in ("rater", "note"))
    if spec.justification == "required" and not note:
        raise DataError(f"{where}: no note; expected words: this rubric requires them")
    return RaterLabel(rater or str(count), scores, note)


def needed_names(spec: JudgeSpec) -> tuple[str, ...]:
    """Return the names of the metrics that the reward is made of: those with a weight if it is
    their weighted mean `overall`, else the reward's metric alone."""
    if spec.has_weights and spec.reward.metric == OVERALL:
        return tuple(metric.name for metric in spec.metrics if metric.weight is not None)
    return (spec.reward.metric,)


def first_missing(spec: JudgeSpec, scores: Collection[str]) -> str | None:
    """Return the name of the first metric that the reward needs and that is not among `scores`;
    None if all are."""
    return next((name for name in needed_names(spec) if name not in scores), None)


def _parse_score(where: str, name: str, value: Any, spec: JudgeSpec) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    low, high = spec.score_limits(name)
    if not low <= number <= high:
        found = f"{value!r:.60}"
        raise DataError(f"{where}: {name} is {found}; expected a number from {low:g} to {high:g}")
    return number
