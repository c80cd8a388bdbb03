"""Scores that people give in the viewer: `labels.jsonl` of the run, as `human:FILE` reads it.

Labels by another rubric than judge `human`'s lie in a file of their own, `labels-RUBRIC.jsonl`, as
`RUBRIC@human:FILE` reads it: a file holds the scores of one rubric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.errors import DataError
from convbench.judge.human import needed
from convbench.judge.scoring_form import PEOPLE
from convbench.schema import JudgeSpec
from convbench.store import Run
from convbench.store.jsonl import records, write_whole
from convbench.store.locks import folder_lock

NOTE, RATER = 10_000, 80
"""Most characters of a note, and of a rater's name."""


@dataclass(frozen=True)
class Scoring:
    """What scoring needs from elsewhere: the rubric, and agreement with the other judges."""

    spec: Callable[[Run], JudgeSpec]
    """A run's rubric (`judge.scoring_form.rubric_of`): its metrics with their ranges."""
    agreement: Callable[[Run, Path, JudgeSpec], list[dict[str, Any]]]
    """Given a run, its labels and their rubric, one mapping a judge: judge, common, equal, kappa,
    correlation, difference."""


def labels_file(run: Run, rubric: str = PEOPLE) -> Path:
    """Return where a run's labels by a rubric lie."""
    return run.path / ("labels.jsonl" if rubric == PEOPLE else f"labels-{rubric}.jsonl")


def labels_of(run: Run, conversation_id: str) -> list[dict[str, Any]]:
    """Return the labels that one conversation has, by whatever rubric."""
    found = (row for path in label_files(run) for row in records(path))
    return [row for row in found if row.get("conversation_id") == conversation_id]


def scored(run: Run) -> int:
    """Return how many labels a run has."""
    return sum(1 for path in label_files(run) for _ in records(path))


def label_files(run: Run) -> list[Path]:
    """Return the files of labels there are, by name."""
    found = [run.path / "labels.jsonl", *sorted(run.path.glob("labels-*.jsonl"))]
    return [path for path in found if path.is_file()]


def save(run: Run, spec: JudgeSpec, label: Mapping[str, Any]) -> dict[str, Any]:
    """Keep one label, in the place of the rater's earlier one of this conversation.

    `label`: conversation_id, rater, scores by metric, note. No scores take the label away.
    Raises DataError for scores that `human:FILE` would refuse.
    """
    row = check(spec, label)
    mine = (row["conversation_id"], row["rater"])
    path = labels_file(run, spec.name)
    with folder_lock(run.path, "keeping labels", name=".labels.lock", wait_s=10):
        rows = [r for r in records(path) if (r.get("conversation_id"), r.get("rater")) != mine]
        if label["scores"]:
            rows.append(row)
        # ASCII, because a reader may take other characters for line ends.
        write_whole(path, "".join(json.dumps(r) + "\n" for r in rows).encode())
    return row


def check(spec: JudgeSpec, label: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row to keep. Raises DataError naming what was found and expected."""
    rater, note, scores = (label.get(name) for name in ("rater", "note", "scores"))
    if not isinstance(rater, str) or not 0 < len(rater.strip()) <= RATER or not rater.isprintable():
        raise DataError(f"rater: expected a name of 1 to {RATER} characters")
    if not isinstance(note, str) or len(note) > NOTE:
        raise DataError(f"note: expected text of at most {NOTE:,} characters")
    if not isinstance(scores, dict):
        raise DataError("scores: expected numbers by metric")
    names = [metric.name for metric in spec.metrics]
    unknown = [name for name in scores if name not in names]
    if unknown:
        raise DataError(f"scores: found {unknown[0]!r}; expected {', '.join(names)}")
    for name, value in scores.items():
        _number(spec, name, value)
    missing = needed(spec, scores) if scores else None
    if missing:
        raise DataError(f"scores: no {missing}; expected it: it is the reward")
    if scores and spec.justification == "required" and not note.strip():
        raise DataError("note: expected words: this rubric requires them")
    ordered = {name: scores[name] for name in names if name in scores}
    return {"conversation_id": label["conversation_id"], "rater": rater.strip(), **ordered,
            "note": note.strip()}  # fmt: skip


def _number(spec: JudgeSpec, name: str, value: Any) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    low, high = spec.limits(name)
    if not good or not low <= value <= high:
        raise DataError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}")
