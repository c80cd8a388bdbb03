"""People's labels beside the judges': what people score, and how far they agree with each judge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from convbench.judge.human import read_labels
from convbench.judge.panel import Talk, panel
from convbench.schema import JudgeSpec, Verdict
from convbench.store import Run
from convbench.store.grades import count_words
from convbench.store.index import VerdictRow

PEOPLE = "people"
"""Name of the labels among the judges."""


def agreement(run: Run, labels: Path, spec: JudgeSpec) -> list[dict[str, Any]]:
    """Return how people's labels by a rubric and each judge agree on its headline metric, a row a
    judge that is read by this metric."""
    read = read_labels(labels, spec)
    specs = {**run.judge_specs(), read.digest: spec}
    verdicts: list[Verdict | VerdictRow] = [
        row
        for row in run.verdict_rows()
        if row.conversation_id in read.rows
        and not row.judge.startswith("human:")
        and specs.get(row.fingerprint, spec).headline == spec.headline
    ]
    protocol = run.manifest.protocol
    talks = [
        Talk(
            row.conversation_id,
            row.example_id,
            count_words(protocol, run.read_conversation(*row[:3])),
        )
        for row in run.heads()
        if row.conversation_id in read.rows and row.ended
    ]
    there = {talk.conversation_id for talk in talks}
    for name in filter(there.__contains__, read.rows):
        scores = spec.whole(read.scores(name)[0])
        verdicts.append(
            Verdict(conversation_id=name, judge=PEOPLE, fingerprint=read.digest, scores=scores)
        )
    found = panel(talks, verdicts, spec.headline, specs=specs, beside=PEOPLE)
    low, high = spec.limits(spec.headline)
    rows = []
    for pair in found.pairs:
        points = high - low
        rows.append(
            {
                "judge": pair.first,
                "common": pair.common,
                "equal": pair.equal,
                "kappa": pair.kappa,
                "correlation": pair.correlation,
                "difference": None if pair.apart is None else round(points * pair.apart.mean, 9),
            }
        )
    return [{k: _finite(v) for k, v in row.items()} for row in rows]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
