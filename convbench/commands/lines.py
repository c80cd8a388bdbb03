"""The table of `train seal`: closed-book accuracy by what was trained on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from convbench.errors import RunError
from convbench.judge import Judge
from convbench.report.stats import Estimate, estimate
from convbench.store import Run
from convbench.store.jsonl import write_whole

UNTRAINED = "untrained self-edits"


@dataclass(frozen=True)
class Line:
    """One line of the table: a way to adapt, and accuracy over the test passages."""

    name: str
    estimate: Estimate
    values: tuple[tuple[str, float], ...]
    """(passage, accuracy) of every adaptation."""


def line(name: str, values: Iterable[tuple[str, float]]) -> Line:
    """Return a line with its mean and interval; RunError where nothing was adapted."""
    values = tuple(values)
    found = estimate(values)
    if found is None:
        raise RunError(
            f"{name}: found no adaptation on the test split; expected some test passages"
        )
    return Line(name, found, values)


def accuracies(run: Run, judge: Judge, split: str = "test") -> list[tuple[str, float]]:
    """Return (passage, accuracy) of every judged self-edit of a split."""
    example_of = {c.conversation_id: run.examples[c.example_id] for c in run.conversations()}
    found = []
    for verdict in run.verdicts():
        example = example_of.get(verdict.conversation_id)
        if example is None or example.split != split or verdict.failure is not None:
            continue
        if verdict.judge == judge.name:
            found.append((example.group_id, verdict.scores["accuracy"]))
    return found


def learners(run: Run, judge: Judge) -> set[str]:
    """Return the fingerprints of the weights that learnt a run's self-edits."""
    found = (v for v in run.verdicts() if v.judge == judge.name and v.failure is None)
    return {v.details["learner"] for v in found}


def differences(table: Iterable[Line], reference: str = UNTRAINED) -> list[Line]:
    """Return each other line less the reference, passage by passage."""
    means = {one.name: _by_passage(one) for one in table}
    below = means.pop(reference, {})
    found = []
    for name, values in means.items():
        pairs = [(group, value - below[group]) for group, value in values.items() if group in below]
        if pairs:
            found.append(line(f"{name} less {reference}", pairs))
    return found


def _by_passage(one: Line) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for group, value in one.values:
        groups.setdefault(group, []).append(value)
    return {group: fmean(values) for group, values in groups.items()}


def markdown(table: Iterable[Line]) -> str:
    """Return the lines as a table: mean accuracy with its 95% interval, clustered by passage."""
    rows = ["| adaptation | accuracy | 95% interval | adaptations | passages |",
            "|---|---:|---:|---:|---:|"]  # fmt: skip
    for one in table:
        found = one.estimate
        low, high = found.interval or (found.mean, found.mean)
        rows.append(
            f"| {one.name} | {found.mean:.3f} | {low:.3f} to {high:.3f} | {found.n} | "
            f"{found.groups} |"
        )
    return "\n".join(rows) + "\n"


def write(run: Run, table: list[Line], more: Iterable[str] = ()) -> Path:
    """Write the lines, their differences and more text into the run's reports."""
    run.reports.mkdir(exist_ok=True)
    values = {one.name: list(one.values) for one in table}
    write_whole(run.reports / "seal.json", json.dumps(values, indent=1).encode() + b"\n")
    path = run.reports / "seal.md"
    parts = [markdown(table), markdown(differences(table)), *more]
    write_whole(path, "\n".join(parts).encode())
    return path
