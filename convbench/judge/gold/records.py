"""The files of gold labels: `gold/draws.jsonl` and `gold/labels.jsonl` of a run.

They hold for the run and its evaluations together, for draws go across policies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from convbench.errors import DataError, RunError
from convbench.judge.scoring_form import by_people, shown
from convbench.schema import JudgeSpec, Metric
from convbench.schema.gold import NOTE, RATER, Draw, GoldLabel
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error, lines
from convbench.store.locks import folder_lock
from convbench.store.shape import checked

T = TypeVar("T", bound=BaseModel)


def home(run: Run) -> Run:
    """Return the run whose folder holds the gold labels: its parent's, where it is an evaluation
    that lies in it."""
    above = run.path.resolve().parent.parent
    if run.manifest.parent is not None and (above / "run.json").is_file():
        found = Run.open(above)
        if found.manifest.id == run.manifest.parent:
            return found
    return run


def family(run: Run) -> list[Run]:
    """Return a run and its evaluations."""
    return [run, *run.children()]


def draws(run: Run) -> list[Draw]:
    """Return the draws of a run, in order."""
    return list(_read(_file(run, "draws"), Draw))


def labels(run: Run) -> dict[tuple[str, str], GoldLabel]:
    """Return the newest label of each (conversation, rater)."""
    return {(x.conversation_id, x.rater): x for x in _read(_file(run, "labels"), GoldLabel)}


def keep_draw(run: Run, draw: Draw) -> None:
    """Append a draw."""
    _append(run, "draws", [draw])


def keep_labels(run: Run, found: list[GoldLabel]) -> None:
    """Append labels, all or none."""
    _append(run, "labels", found)


def now() -> str:
    """Return the UTC time, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def rubric(run: Run, fingerprint: str) -> JudgeSpec:
    """Return the spec of the judge that people's labels correct. RunError where it was not kept."""
    for one in family(run):
        found = one.judge_specs().get(fingerprint)
        if found is not None:
            return found
    raise RunError(
        f"{run.path}: found no spec of the judge with fingerprint {fingerprint}; expected it in "
        "judges/, since people score by its rubric; judge again and draw again"
    )


def metrics(spec: JudgeSpec) -> list[dict[str, Any]]:
    """Return what people score, as a form needs it: the judge's metrics with their range."""
    people = by_people(spec)
    if not people.metrics:  # imported rewards, or a function that names none
        metric = Metric(name=spec.reward.metric, label=spec.reward.metric.capitalize())
        people = people.model_copy(update={"metrics": (metric,)})
    found: list[dict[str, Any]] = shown(people)["metrics"]
    return found


def label(
    spec: JudgeSpec, conversation_id: str, said: Mapping[str, Any], where: str, *, blind: bool
) -> GoldLabel:
    """Return the label that `rater`, `scores`, `note` and `skipped` make.

    Raises DataError naming what was found and expected.
    """
    rater, skipped, note = said.get("rater"), said.get("skipped"), said.get("note") or ""
    if not isinstance(rater, str) or not 0 < len(rater.strip()) <= RATER or not rater.isprintable():
        raise DataError(f"{where}: rater: expected a name of 1 to {RATER} characters")
    for name, text in (("note", note), ("skipped", skipped or "")):
        if not isinstance(text, str) or len(text) > NOTE:
            raise DataError(f"{where}: {name}: expected text of at most {NOTE:,} characters")
    scores = said.get("scores") or {}
    if not isinstance(scores, Mapping):
        raise DataError(f"{where}: scores: expected numbers by metric")
    if skipped is not None:
        if scores or not str(skipped).strip():
            raise DataError(f"{where}: skipped: expected a reason, and no scores beside it")
    else:
        _check(spec, scores, where)
        if spec.justification == "required" and not note.strip():
            raise DataError(f"{where}: no note; expected words: the rubric requires them")
    return GoldLabel(
        conversation_id=conversation_id, rater=rater.strip(), note=str(note).strip(),
        scores=spec.whole({str(name): float(value) for name, value in scores.items()}),
        skipped=None if skipped is None else str(skipped).strip(), blind=blind, given=now(),
    )  # fmt: skip


def _check(spec: JudgeSpec, scores: Mapping[str, Any], where: str) -> None:
    known = {str(m["name"]): m for m in metrics(spec)}
    for name, value in scores.items():
        if name not in known:
            raise DataError(f"{where}: found {name!r:.60}; expected {', '.join(known)}")
        low, high = known[name]["lowest"], known[name]["highest"]
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or not low <= value <= high:
            raise DataError(
                f"{where}: {name} is {value!r:.60}; expected a number from {low:g} to {high:g}"
            )
    missing = [name for name, m in known.items() if m["needed"] and name not in scores]
    if missing:
        raise DataError(f"{where}: no {missing[0]}; expected it: it is the reward")


def _file(run: Run, name: str) -> Path:
    return run.path / "gold" / f"{name}.jsonl"


def _read(path: Path, model: type[T]) -> Iterator[T]:
    for number, line in lines(path):
        yield checked(f"{path}:{number}", line, model)


def _append(run: Run, name: str, found: list[Any]) -> None:
    path = _file(run, name)
    with _locked(run, path), Appender(path) as file:
        file.write(b"\n".join(one.model_dump_json().encode() for one in found))


@contextmanager
def _locked(run: Run, path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from None
    with folder_lock(path.parent, "keeping labels", wait_s=10):
        yield
