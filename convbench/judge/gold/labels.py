"""The files of gold labels (`gold/draws.jsonl`, `gold/labels.jsonl` of a run), with weights and
mean scores for estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from convbench.errors import DataError, RunError
from convbench.judge.scoring_form import by_people, shown
from convbench.schema import JudgeSpec, Metric
from convbench.schema.gold import NOTE, RATER, Draw, GoldLabel
from convbench.stats.agreement import alpha
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error, lines
from convbench.store.locks import folder_lock
from convbench.store.shape import checked

T = TypeVar("T", bound=BaseModel)


def home(run: Run) -> Run:
    """Return the run whose folder has the gold labels: the parent of an evaluation that lies in its
    folder, else the run itself."""
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
    """Return the draws of a run, oldest first."""
    return list(_read(_file(run, "draws"), Draw))


def labels(run: Run) -> dict[tuple[str, str], GoldLabel]:
    """Return the newest label of each (conversation, rater)."""
    return {(x.conversation_id, x.rater): x for x in _read(_file(run, "labels"), GoldLabel)}


def keep_draw(run: Run, draw: Draw) -> None:
    """Append a draw to the run's file."""
    _append(run, "draws", [draw])


def keep_labels(run: Run, found: list[GoldLabel]) -> None:
    """Append labels to the run's file, all or none."""
    _append(run, "labels", found)


def now() -> str:
    """Return the UTC time in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def rubric(run: Run, fingerprint: str) -> JudgeSpec:
    """Return the spec of the judge that people's labels correct. Raises RunError if no run of the
    family has it."""
    for one in family(run):
        found = one.judge_specs().get(fingerprint)
        if found is not None:
            return found
    raise RunError(
        f"{run.path}: found no spec of the judge with fingerprint {fingerprint}; expected it in "
        "judges/, since people score by its rubric; judge again and draw again"
    )


def metrics(spec: JudgeSpec) -> list[dict[str, Any]]:
    """Return the judge's metrics with their ranges, as the fields of a form."""
    people = by_people(spec)
    if not people.metrics:  # imported rewards, or a function that names none
        metric = Metric(name=spec.reward.metric, label=spec.reward.metric.capitalize())
        people = people.model_copy(update={"metrics": (metric,)})
    found: list[dict[str, Any]] = shown(people)["metrics"]
    return found


def label(
    spec: JudgeSpec, conversation_id: str, said: Mapping[str, Any], where: str, *, blind: bool
) -> GoldLabel:
    """Return the label of an answer with `rater`, `scores`, `note` and `skipped`.

    Raises DataError with `where`, what was found and expected.
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
        conversation_id=conversation_id,
        rater=rater.strip(),
        note=str(note).strip(),
        scores=spec.whole({str(name): float(value) for name, value in scores.items()}),
        skipped=None if skipped is None else str(skipped).strip(),
        blind=blind,
        given=now(),
    )


def _check(spec: JudgeSpec, scores: Mapping[str, Any], where: str) -> None:
    """Raise DataError unless all scores are of the rubric and in range, and no required one is
    missing."""
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


@dataclass(frozen=True)
class Gold:
    """People's labels of the conversations that were drawn for one judge."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """By drawn conversation: inverse of its probability, over all draws."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By labelled conversation: mean over raters, by metric."""
    labels: tuple[GoldLabel, ...] = ()
    """Labels of drawn conversations, the newest of each person."""
    drawn: int = 0
    """Number of drawn conversations."""
    undrawn: int = 0
    """Number of labels of conversations in no draw; they have no weight and do not count."""

    @property
    def skipped(self) -> dict[str, str]:
        """The newest reason by conversation, of those that were skipped and never scored."""
        found = {x.conversation_id: x.skipped for x in self.labels if x.skipped is not None}
        return {name: why for name, why in found.items() if name not in self.scores}

    @property
    def raters(self) -> dict[str, int]:
        """Number of conversations that each person scored."""
        found: dict[str, int] = {}
        for one in self.labels:
            found[one.rater] = found.get(one.rater, 0) + (one.skipped is None)
        return found

    def agreement(self, metric: str) -> tuple[float | None, int]:
        """Return (Krippendorff's alpha between people at the interval level, number of
        conversations that several of them scored); alpha is None without any."""
        names = sorted({x.rater for x in self.labels})
        by = {(x.rater, x.conversation_id): x.scores.get(metric) for x in self.labels}
        talks = sorted({x.conversation_id for x in self.labels})
        ratings = [[by.get((name, talk)) for talk in talks] for name in names]
        both = sum(sum(row[i] is not None for row in ratings) > 1 for i in range(len(talks)))
        return (alpha(ratings, "interval") if both else None), both


def gold_of(run: Run, fingerprint: str) -> Gold:
    """Return the gold labels of a run's family for a judge."""
    place = home(run)
    taken = [draw for draw in draws(place) if draw.fingerprint == fingerprint]
    weights = _weights(taken)
    newest = labels(place).values()
    counted = tuple(x for x in newest if x.conversation_id in weights)
    return Gold(weights, _means(counted), counted, len(weights), len(newest) - len(counted))


def _weights(found: Iterable[Draw]) -> dict[str, float]:
    """Return each drawn conversation's weight: the mean over draws, by their size, of the inverse
    probability in those that have it. So a draw may depend on earlier labels, and the weighted sum
    is still unbiased (Zrnic, Candes, arXiv 2403.03208, section 5)."""
    listed = list(found)
    total = sum(draw.count for draw in listed) or 1
    weights: dict[str, float] = {}
    for draw in listed:
        for one in draw.drawn:
            more = draw.count / total / one.chance
            weights[one.conversation_id] = weights.get(one.conversation_id, 0.0) + more
    return weights


def _means(found: Iterable[GoldLabel]) -> dict[str, dict[str, float]]:
    """Return mean scores over raters, by conversation and metric."""
    given: dict[str, dict[str, list[float]]] = {}
    for one in found:
        for name, value in one.scores.items():
            given.setdefault(one.conversation_id, {}).setdefault(name, []).append(value)
    return {
        talk: {name: math.fsum(values) / len(values) for name, values in by.items()}
        for talk, by in given.items()
    }
