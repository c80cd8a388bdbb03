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
from convbench.judges.scoring_form import form_fields, label_judge
from convbench.schema import JudgeSpec, Metric
from convbench.schema.gold import LONGEST_NOTE, LONGEST_RATER, GoldDraw, GoldLabel
from convbench.stats.agreement import krippendorff_alpha
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error, numbered_lines
from convbench.store.locks import folder_lock
from convbench.store.shape import parse_record

T = TypeVar("T", bound=BaseModel)


def home_run(run: Run) -> Run:
    """Return the run whose folder has the gold labels: the parent of an evaluation that lies in its
    folder, else the run itself."""
    above = run.path.resolve().parent.parent
    if run.manifest.parent is not None and (above / "run.json").is_file():
        parent = Run.open(above)
        if parent.manifest.id == run.manifest.parent:
            return parent
    return run


def run_family(run: Run) -> list[Run]:
    """Return a run and its evaluations, the run first."""
    return [run, *run.child_runs()]


def read_draws(run: Run) -> list[GoldDraw]:
    """Return the draws in a run's own folder, oldest first; empty without any.

    Raise RunError for a line that cannot be read.
    """
    return list(_read_records(_gold_file(run, "draws"), GoldDraw))


def newest_labels(run: Run) -> dict[tuple[str, str], GoldLabel]:
    """Return the newest label by (conversation_id, rater), from a run's own folder, oldest first;
    empty without any. A label may be a skip."""
    labels: dict[tuple[str, str], GoldLabel] = {}
    for label in _read_records(_gold_file(run, "labels"), GoldLabel):
        key = (label.conversation_id, label.rater)
        labels.pop(key, None)
        labels[key] = label
    return labels


def keep_draw(run: Run, draw: GoldDraw) -> None:
    """Append a draw to the run's `gold/draws.jsonl`, under a lock."""
    _append_records(run, "draws", [draw])


def keep_labels(run: Run, new_labels: list[GoldLabel]) -> None:
    """Append labels to the run's `gold/labels.jsonl` in one write, all or none, under a lock.

    Earlier labels stay in the file.
    """
    _append_records(run, "labels", new_labels)


def utc_now() -> str:
    """Return the UTC time in ISO 8601, to the second and with the offset `+00:00`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def judge_rubric(run: Run, fingerprint: str) -> JudgeSpec:
    """Return the spec of the judge with this fingerprint, whose scores people's labels correct,
    from the run or one of its evaluations.

    Raise RunError if none of them has it.
    """
    for member in run_family(run):
        spec = member.judge_specs().get(fingerprint)
        if spec is not None:
            return spec
    raise RunError(
        f"{run.path}: found no spec of the judge with fingerprint {fingerprint}; expected it in "
        "judges/, since people score by its rubric; judge again and draw again"
    )


def form_metrics(spec: JudgeSpec) -> list[dict[str, Any]]:
    """Return a dict for each metric that people score by this judge.

    Keys: `name`, `label`, `about`, `lowest`, `highest`, `needed`, `weight`. Optional metrics are
    left out; if none is left, there is one, named as the reward's metric.
    """
    people = label_judge(spec)
    if not people.metrics:  # imported rewards, or a function that names none
        metric = Metric(name=spec.reward.metric, label=spec.reward.metric.capitalize())
        people = people.model_copy(update={"metrics": (metric,)})
    listed: list[dict[str, Any]] = form_fields(people)["metrics"]
    return listed


def make_label(
    spec: JudgeSpec, conversation_id: str, answer: Mapping[str, Any], where: str, *, blind: bool
) -> GoldLabel:
    """Return the label of an answer with `rater`, `scores` by metric and `note`, or the reason for
    skipping in `skipped`; its time is now, and `overall` is added if weights define it. Nothing is
    stored.

    Raise DataError, beginning with `where`, for a missing rater, a score that is unknown, out of
    range or required and missing, a missing note if the rubric requires one, and scores with
    `skipped`.
    """
    rater, skipped, note = answer.get("rater"), answer.get("skipped"), answer.get("note") or ""
    if (
        not isinstance(rater, str)
        or not 0 < len(rater.strip()) <= LONGEST_RATER
        or not rater.isprintable()
    ):
        raise DataError(f"{where}: rater: expected a name of 1 to {LONGEST_RATER} characters")
    for name, text in (("note", note), ("skipped", skipped or "")):
        if not isinstance(text, str) or len(text) > LONGEST_NOTE:
            raise DataError(
                f"{where}: {name}: expected text of at most {LONGEST_NOTE:,} characters"
            )
    scores = answer.get("scores") or {}
    if not isinstance(scores, Mapping):
        raise DataError(f"{where}: scores: expected numbers by metric")
    if skipped is not None:
        if scores or not str(skipped).strip():
            raise DataError(f"{where}: skipped: expected a reason and no scores")
    else:
        _check_scores(spec, scores, where)
        if spec.justification == "required" and not note.strip():
            raise DataError(f"{where}: no note; expected words: the rubric requires them")
    return GoldLabel(
        conversation_id=conversation_id,
        rater=rater.strip(),
        note=str(note).strip(),
        scores=spec.with_overall({str(name): float(value) for name, value in scores.items()}),
        skipped=None if skipped is None else str(skipped).strip(),
        blind=blind,
        given=utc_now(),
    )


def _check_scores(spec: JudgeSpec, scores: Mapping[str, Any], where: str) -> None:
    """Raise DataError unless all scores are of the rubric and in range, and no required one is
    missing."""
    known = {str(m["name"]): m for m in form_metrics(spec)}
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
        raise DataError(f"{where}: no {missing[0]}; expected one, since the reward is made of it")


def _gold_file(run: Run, name: str) -> Path:
    return run.path / "gold" / f"{name}.jsonl"


def _read_records(path: Path, model: type[T]) -> Iterator[T]:
    for number, line in numbered_lines(path):
        yield parse_record(f"{path}:{number}", line, model)


def _append_records(run: Run, name: str, rows: list[Any]) -> None:
    path = _gold_file(run, name)
    with _lock_folder(run, path), Appender(path) as file:
        file.write(b"\n".join(row.model_dump_json().encode() for row in rows))


@contextmanager
def _lock_folder(run: Run, path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from None
    with folder_lock(path.parent, "keeping labels", wait_s=10):
        yield


@dataclass(frozen=True)
class GoldLabels:
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

    def rater_agreement(self, metric: str) -> tuple[float | None, int]:
        """Return (Krippendorff's alpha between people at the interval level, number of
        conversations that several of them scored by this metric).

        Alpha is None without such a conversation, or where it is undefined.
        """
        names = sorted({x.rater for x in self.labels})
        by = {(x.rater, x.conversation_id): x.scores.get(metric) for x in self.labels}
        talks = sorted({x.conversation_id for x in self.labels})
        ratings = [[by.get((name, talk)) for talk in talks] for name in names]
        both = sum(sum(row[i] is not None for row in ratings) > 1 for i in range(len(talks)))
        return (krippendorff_alpha(list(zip(*ratings, strict=True))) if both else None), both


def gold_of(run: Run, fingerprint: str) -> GoldLabels:
    """Return people's labels of the conversations that were drawn for this judge, from the folder
    of the run or of its parent (`home_run`), with weights and mean scores; empty ones without a
    draw."""
    root = home_run(run)
    taken = [draw for draw in read_draws(root) if draw.fingerprint == fingerprint]
    weights = _draw_weights(taken)
    newest = newest_labels(root).values()
    counted = tuple(x for x in newest if x.conversation_id in weights)
    return GoldLabels(
        weights, _rater_means(counted), counted, len(weights), len(newest) - len(counted)
    )


def _draw_weights(taken: Iterable[GoldDraw]) -> dict[str, float]:
    """Return each drawn conversation's weight: the mean over draws, by their size, of the inverse
    probability in those that have it. So a draw may depend on earlier labels, and the weighted sum
    is still unbiased (Zrnic, Candes, arXiv 2403.03208, section 5)."""
    listed = list(taken)
    total = sum(draw.count for draw in listed) or 1
    weights: dict[str, float] = {}
    for draw in listed:
        for item in draw.drawn:
            more = draw.count / total / item.chance
            weights[item.conversation_id] = weights.get(item.conversation_id, 0.0) + more
    return weights


def _rater_means(counted: Iterable[GoldLabel]) -> dict[str, dict[str, float]]:
    """Return mean scores over raters, by conversation and metric."""
    by_talk: dict[str, dict[str, list[float]]] = {}
    for label in counted:
        for name, value in label.scores.items():
            by_talk.setdefault(label.conversation_id, {}).setdefault(name, []).append(value)
    return {
        talk: {name: math.fsum(values) / len(values) for name, values in by.items()}
        for talk, by in by_talk.items()
    }
