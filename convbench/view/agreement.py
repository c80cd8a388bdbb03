"""People's labels beside the judges': what people score, and how far they agree with each judge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from convbench.judge.human import read_labels
from convbench.judge.panel import panel
from convbench.schema import JudgeSpec, Verdict
from convbench.store import Run, called

PEOPLE = "people"
"""Name of the labels among the judges."""


def agreement(run: Run, labels: Path, spec: JudgeSpec) -> list[dict[str, Any]]:
    """Return how people's labels by a rubric and each judge agree on its headline metric, a row a
    judge that is read by this metric."""
    read = read_labels(labels, spec)
    specs = {**run.judge_specs(), read.digest: spec}
    given = [
        v for v in called.verdicts(run, read.rows.__contains__)
        if not v.judge.startswith("human:")
        and specs.get(v.fingerprint, spec).headline == spec.headline
    ]  # fmt: skip
    talks = [spot.read() for spot in called.conversations(run, read.rows.__contains__)]
    there = {talk.conversation_id for talk in talks}
    for name in filter(there.__contains__, read.rows):
        scores = spec.whole(read.scores(name)[0])
        given.append(
            Verdict(conversation_id=name, judge=PEOPLE, fingerprint=read.digest, scores=scores)
        )
    found = panel(run.manifest.protocol, talks, given, spec.headline, specs=specs)
    low, high = spec.limits(spec.headline)
    rows = []
    for pair in found.pairs:
        if PEOPLE not in (pair.first, pair.second):
            continue
        points = (high - low) * (-1 if pair.first == PEOPLE else 1)
        rows.append(
            {
                "judge": pair.second if pair.first == PEOPLE else pair.first,
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
