"""Store the scores that people give in the viewer, and serve the queue of gold labels.

Scores go to `labels.jsonl` of the run, as `human:FILE` reads it. A file holds the scores of one
rubric: those by another rubric than judge `human`'s go to `labels-RUBRIC.jsonl`, as
`RUBRIC@human:FILE` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from convbench.errors import DataError
from convbench.judges.gold.labelling import LabelQueue, QueueEntry
from convbench.judges.gold.labels import home_run, read_draws
from convbench.judges.human import first_missing, read_labels
from convbench.judges.scoring_form import PEOPLE
from convbench.schema import JudgeSpec
from convbench.schema.gold import LONGEST_NOTE, LONGEST_RATER
from convbench.stats.agreement import agreement
from convbench.store import Run
from convbench.store.jsonl import read_records, write_atomic
from convbench.store.locks import folder_lock
from convbench.viewer.filters import finite_row
from convbench.viewer.index import ViewIndex
from convbench.viewer.talk import talk_json


def labels_file(run: Run, rubric: str = PEOPLE) -> Path:
    """Return the path of a run's labels by a rubric, `labels.jsonl` or `labels-RUBRIC.jsonl`; the
    file need not exist."""
    return run.path / ("labels.jsonl" if rubric == PEOPLE else f"labels-{rubric}.jsonl")


def labels_of(run: Run, conversation_id: str) -> list[dict[str, Any]]:
    """Return the labels of one conversation as stored, of all rubrics and raters; empty if there
    are none."""
    labels = (row for path in label_files(run) for row in read_records(path))
    return [row for row in labels if row.get("conversation_id") == conversation_id]


def count_labels(run: Run) -> int:
    """Return the number of stored labels of a run, of all rubrics and raters; 0 without a file."""
    return sum(1 for path in label_files(run) for _ in read_records(path))


def label_files(run: Run) -> list[Path]:
    """Return the existing files of labels of a run: `labels.jsonl` first, then those of other
    rubrics sorted by name."""
    paths = [run.path / "labels.jsonl", *sorted(run.path.glob("labels-*.jsonl"))]
    return [path for path in paths if path.is_file()]


def save_label(run: Run, spec: JudgeSpec, label: Mapping[str, Any]) -> dict[str, Any]:
    """Store one label and return its row; the rater's earlier label of the conversation by this
    rubric is replaced.

    `label` has conversation_id, rater, scores by metric, and note. Without scores the earlier label
    is removed, and the row is returned all the same. Raise DataError for a label that `check_label`
    refuses, RunError if it cannot be written.
    """
    row = check_label(spec, label)
    mine = (row["conversation_id"], row["rater"])
    path = labels_file(run, spec.name)
    with folder_lock(run.path, "keeping labels", name=".labels.lock", wait_s=10):
        rows = [r for r in read_records(path) if (r.get("conversation_id"), r.get("rater")) != mine]
        if label["scores"]:
            rows.append(row)
        # ASCII, because a reader may take other characters for line ends.
        write_atomic(path, "".join(json.dumps(r) + "\n" for r in rows).encode())
    return row


def check_label(spec: JudgeSpec, label: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row to store for a label: conversation_id, rater, the scores by metric in the
    rubric's order, and note.

    Empty scores are allowed. Raise DataError, which says what was found and expected, for a wrong
    rater, note or score, or if the reward's metric is missing.
    """
    rater, note, scores = (label.get(name) for name in ("rater", "note", "scores"))
    if (
        not isinstance(rater, str)
        or not 0 < len(rater.strip()) <= LONGEST_RATER
        or not rater.isprintable()
    ):
        raise DataError(f"rater: expected a name of 1 to {LONGEST_RATER} characters")
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        raise DataError(f"note: expected text of at most {LONGEST_NOTE:,} characters")
    if not isinstance(scores, dict):
        raise DataError("scores: expected numbers by metric")
    names = [metric.name for metric in spec.metrics]
    unknown = [name for name in scores if name not in names]
    if unknown:
        raise DataError(f"scores: found {unknown[0]!r}; expected {', '.join(names)}")
    for name, value in scores.items():
        _check_score(spec, name, value)
    missing = first_missing(spec, scores) if scores else None
    if missing:
        raise DataError(f"scores: no {missing}; expected it: it is the reward")
    if scores and spec.justification == "required" and not note.strip():
        raise DataError("note: expected words: this rubric requires them")
    ordered = {name: scores[name] for name in names if name in scores}
    return {
        "conversation_id": label["conversation_id"],
        "rater": rater.strip(),
        **ordered,
        "note": note.strip(),
    }


def _check_score(spec: JudgeSpec, name: str, value: Any) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    low, high = spec.score_limits(name)
    if not good or not low <= value <= high:
        raise DataError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}")


PUBLIC_TURN_FIELDS = ("speaker", "policy", "finish", "rounds", "reasoning", "parts", "index")
"""Fields of a turn that raters see; the others are sent as null."""


class LabelQueues:
    """The label queues of the runs that the server shows."""

    def __init__(self, index: ViewIndex) -> None:
        self.index = index
        homes = {str(home_run(run).path.resolve()): home_run(run) for run in index.runs}
        self.queues = [LabelQueue(run) for run in homes.values()]

    @property
    def drawn_count(self) -> int:
        """Return the number of conversations in the queues, each counted once in a queue however
        often it was drawn."""
        return sum(
            len({entry.conversation_id for draw in read_draws(queue.run) for entry in draw.drawn})
            for queue in self.queues
        )

    def next_item(self, request: web.Request) -> dict[str, Any]:
        """Return `item`, the next conversation for this rater to label, and `progress` of each
        queue. `item` is None if nothing is left.

        With `back=1` in the request it is the one labelled last, to correct it. Judges and their
        scores are not in it. Raise DataError for a wrong rater.
        """
        rater = _parse_rater(request.query.get("rater"))
        back = request.query.get("back") == "1"
        item = None
        for queue in self.queues:
            waiting = (
                queue.last_entry(rater) if back else next(iter(queue.waiting_entries(rater)), None)
            )
            if waiting is not None:
                item = self._item_json(queue, waiting)
                break
        return {
            "item": item,
            "progress": [_without_judges(queue.progress(rater)) for queue in self.queues],
        }

    def store_label(self, label: Any) -> dict[str, Any]:
        """Store a rater's label of a conversation in the queue that holds its `key`; return `kept`
        as true.

        Raise DataError for an unknown key or a label that the queue refuses.
        """
        if not isinstance(label, dict) or not isinstance(label.get("key"), str):
            raise DataError("expected a JSON object with key, rater, scores or skipped")
        for queue in self.queues:
            if any(label["key"] == key for key in _queue_keys(queue)):
                queue.keep_label(label)
                return {"kept": True}
        raise DataError(f"key: {label['key']!r:.40} is not in the queue")

    def _item_json(self, queue: LabelQueue, waiting: QueueEntry) -> dict[str, Any]:
        shown = talk_json(self.index, waiting.conversation_id)
        mine = waiting.own_label
        return {
            "key": waiting.key,
            "question": {k: shown["question"][k] for k in ("text", "choices")},
            "reference": shown["reference"],
            "turns": [
                {k: turn[k] if k in PUBLIC_TURN_FIELDS else None for k in turn}
                for turn in shown["turns"]
            ],
            "metrics": queue.form_fields(waiting.draw),
            "mine": None
            if mine is None
            else mine.model_dump(include={"scores", "note", "skipped"}),
        }


def _without_judges(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of a queue without the names of judges."""
    rows = [{k: v for k, v in row.items() if k != "judge"} for row in progress["agreement"]]
    return {**progress, "agreement": rows}


def _queue_keys(queue: LabelQueue) -> set[str]:
    return {
        queue.conversation_key(entry.conversation_id)
        for draw in read_draws(queue.run)
        for entry in draw.drawn
    }


def _parse_rater(text: str | None) -> str:
    name = (text or "").strip()
    if not 0 < len(name) <= LONGEST_RATER or not name.isprintable():
        raise DataError(f"rater: expected a name of 1 to {LONGEST_RATER} characters")
    return name


def label_agreement(run: Run, labels: Path, spec: JudgeSpec) -> list[dict[str, Any]]:
    """Return how each judge's scores agree with people's labels, a row for each judge with this
    rubric's headline metric.

    A row has judge, common, equal, kappa, correlation and difference (judge minus people, in points
    of the scale); a figure that cannot be computed is None.
    """
    read, metric = read_labels(labels, spec), spec.headline_metric
    low, high = spec.score_limits(metric)
    complete = {row.conversation_id: row.example_id for row in run.conversation_rows() if row.ended}
    people = {}
    for name in (name for name in read.rows if name in complete):
        scores = spec.with_overall(read.conversation_scores(name)[0])
        if metric in scores:
            people[name] = (scores[metric] - low) / (high - low)
    judged: dict[str, dict[str, float]] = {}
    specs = run.judge_specs()
    for row in run.verdict_rows():
        own = specs.get(row.fingerprint, spec)
        fits = own.headline_metric == metric and not own.is_relative
        if fits and metric in row.scores and not row.judge.startswith("human:"):
            least, most = own.score_limits(metric)
            share = (row.scores[metric] - least) / (most - least)
            judged.setdefault(row.judge, {})[row.conversation_id] = share
    agreed = []
    for judge, given in judged.items():
        both = [name for name in people if name in given]
        found = agreement(
            [complete[name] for name in both],
            [given[name] for name in both],
            [people[name] for name in both],
        )
        if found is not None:
            facts = {"judge": judge, "common": found.common, "equal": found.equal}
            facts |= {"kappa": found.kappa, "correlation": found.spearman}
            facts |= {"difference": round((high - low) * found.difference.mean, 9)}
            agreed.append(finite_row(facts))
    return agreed
