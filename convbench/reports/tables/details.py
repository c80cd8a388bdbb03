"""Tables of pooled runs one by one, of rounds, and of how checkpoints were trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from convbench.reports.document import Cell, Column, Table
from convbench.reports.measures import ACCURACY, Measure
from convbench.reports.policies import Observation, Policy, round_of
from convbench.reports.sections import Section
from convbench.reports.tables.cells import (
    estimate_cell,
    headline_measure,
    measure_column,
    measures_of,
    scale_notes,
    seconds_text,
)
from convbench.reports.tables.results import ERRORS
from convbench.stats.means import ErrorKind, Estimate, estimate_mean


def count_table(section: Section, judge: str | None) -> Table:
    """Return the table of numbers of conversations, a row for each policy.

    Columns are planned, missing, failed, complete, unparsed and flagged, and with a judge scored,
    judge failed and unjudged.
    """
    heads = ["planned", "missing", "failed", "complete", "unparsed", "flagged"]
    heads += ["scored", "judge failed", "unjudged"] if judge else []
    rows = []
    for policy in section.policies:
        numbers = conversation_counts(policy, judge)
        rows.append((Cell(policy.name), *(Cell(str(numbers[head])) for head in heads)))
    columns = (Column("Conversations", "Method", False), *(Column(head, head) for head in heads))
    notes = (
        "Missing and failed conversations are excluded; unparsed answers count as wrong; a failed "
        "verdict is not a score.",
    )
    return Table("Counts", columns, tuple(rows), notes, "counts")


def conversation_counts(policy: Policy, judge: str | None = None) -> dict[str, int]:
    """Return a policy's numbers of conversations: planned, missing, failed, complete, unparsed,
    flagged, scored, judge failed, unjudged.

    These are the keys. Flagged and the last three count complete conversations only. Without
    `judge` every complete conversation is unjudged. Missing is planned less recorded.
    """
    outcomes: Counter[str] = Counter()
    for row in policy.observations:
        outcomes.update(_row_outcomes(row, judge))
    heads = ("failed", "complete", "unparsed", "flagged", "scored", "judge failed", "unjudged")
    missing = policy.planned - len(policy.observations)
    return {
        "planned": policy.planned,
        "missing": missing,
        **{head: outcomes[head] for head in heads},
    }


def _row_outcomes(row: Observation, judge: str | None) -> Iterator[str]:
    """Yield the outcomes of a conversation."""
    if row.unparsed:
        yield "unparsed"
    if row.failed:
        yield "failed"
        return
    yield "complete"
    if row.flags:
        yield "flagged"
    scored = row.verdicts.get(judge or "")
    yield "unjudged" if scored is None else "judge failed" if scored.failed else "scored"


def run_table(section: Section, judge: str | None) -> Table | None:
    """Return the table of each pooled run's means of accuracy and the judge's headline, and of the
    mean and standard error over runs.

    The error over runs includes retraining and redrawing questions. None if no policy is pooled
    from several runs.
    """
    if not any(len(policy.members) > 1 for policy in section.policies):
        return None
    measures = [
        m for m in (ACCURACY, headline_measure(measures_of(section, judge))) if m is not None
    ]
    families = dict.fromkeys(m.family for policy in section.policies for m in policy.members)
    names = {family: f"run {index}" for index, family in enumerate(families, 1)}
    columns = [Column("Method", "Method", numeric=False)]
    rows: list[list[Cell]] = [[Cell(policy.name)] for policy in section.policies]
    for measure in measures:
        columns += [Column(f"{measure.head}, {name}", name) for name in names.values()]
        columns.append(Column(f"{measure.head}, over runs", measure.short))
        for policy, row in zip(section.policies, rows, strict=True):
            by_family = {m.family: measure.mean_of(m) for m in policy.members}
            row += [
                estimate_cell(_without_error(by_family.get(family)), measure.digits)
                for family in names
            ]
            means = ((family, e.mean) for family, e in by_family.items() if e is not None)
            row.append(estimate_cell(estimate_mean(means), measure.digits))
    seeds = {m.family: m.run.manifest.seed for p in section.policies for m in p.members}
    listed = ", ".join(f"{name}: seed {seeds[family]}" for family, name in names.items())
    notes = (
        f"{listed}. Over runs: mean ± standard error with every run as one observation.",
        *scale_notes(measures),
    )
    return Table("By run", tuple(columns), tuple(map(tuple, rows)), notes, "by-run")


def _without_error(mean: Estimate | None) -> Estimate | None:
    return None if mean is None else replace(mean, error=None)


def rounds_of(section: Section) -> dict[str, dict[int, Policy]]:
    """Return learner → round → policy for learners with at least two rounds; Base, if there is one,
    is round 0."""
    by_learner: dict[str, dict[int, Policy]] = {}
    for policy in section.policies:
        which = round_of(policy)
        if which is not None:
            by_learner.setdefault(which[0], {})[which[1]] = policy
    start = {0: section.base} if section.base else {}
    return {
        name: {**start, **dict(sorted(some.items()))}
        for name, some in by_learner.items()
        if len(some) > 1
    }


def rounds_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of results by round, a row for each round of each learner, Base as round 0;
    None if no learner has two rounds."""
    by_learner = rounds_of(section)
    if not by_learner:
        return None
    measures = measures_of(section, judge)
    columns = (
        Column("Learner", "Learner", numeric=False),
        Column("Round", "Round"),
        Column("Trained on", "Rows"),
        *(measure_column(measure) for measure in measures),
    )
    rows = tuple(
        row for name, some in by_learner.items() for row in _round_rows(name, some, measures, kind)
    )
    notes = (
        f"Mean ± {ERRORS[kind]}; round 0 is Base. Trained on: training rows; the number in "
        "brackets is from earlier rounds' logs (`replay`).",
        *scale_notes(measures),
    )
    return Table("Rounds", columns, rows, notes, "rounds")


def _round_rows(
    name: str, policies: dict[int, Policy], measures: list[Measure], kind: ErrorKind
) -> Iterator[tuple[Cell, ...]]:
    for round_number, policy in policies.items():
        cells = (estimate_cell(m.mean_of(policy, kind), m.digits) for m in measures)
        yield (Cell(name), Cell(str(round_number)), Cell(_rows_text(policy)), *cells)


def _rows_text(policy: Policy) -> str:
    counts = policy.training.get("counts") or {}
    rows = counts.get("pairs", counts.get("rows"))
    old = counts.get("rows of further runs")
    if rows is None or policy.is_base:
        return "-"
    return f"{rows} ({old})" if old else str(rows)


Training = Mapping[str, Any]
"""A checkpoint's `training.json`."""

COLUMNS: tuple[tuple[str, Callable[[Training], str]], ...] = (
    ("row", lambda t: str(t.get("unit", "-"))),
    ("rows", lambda t: _count_text(t, "rows", "pairs")),
    ("steps", lambda t: str(t.get("steps", "-"))),
    ("tied questions", lambda t: _tied_text(t)),
    ("ties", lambda t: str((t.get("ties") or {}).get("rule", "-"))),
)
TIME_COLUMNS: tuple[tuple[str, Callable[[Training], str]], ...] = (
    ("seconds", lambda t: seconds_text(t["seconds"]) if t.get("seconds") else "-"),
    ("devices", lambda t: _devices_text(t.get("devices") or {})),
)
"""Columns for trainings that recorded their time."""
NOTES = (
    "A row is what a batch holds: a conversation, a turn under its history, or a pair. Tied "
    "questions have several best (or worst) conversations where one is selected; `ties` is "
    "the rule that resolves them.",
)


def training_table(section: Section) -> Table | None:
    """Return the table of how each checkpoint was trained: unit and number of rows, steps and ties;
    a row for each run of a pooled policy.

    None if no policy has a `training.json` with a unit.
    """
    lines = [
        (policy.name, member)
        for policy in section.policies
        for member in policy.run_policies
        if member.training.get("unit")
    ]
    if not lines:
        return None
    timed = any(member.training.get("seconds") for _, member in lines)
    shown = (*COLUMNS, *TIME_COLUMNS) if timed else COLUMNS
    columns = (
        Column("Training", "Method", numeric=False),
        *(Column(name, name, name not in ("row", "ties", "devices")) for name, _ in shown),
    )
    rows = tuple(
        (Cell(name), *(Cell(tell(member.training)) for _, tell in shown)) for name, member in lines
    )
    return Table("Training", columns, rows, (*NOTES, *_gibberish_notes(lines)), "training")


def _gibberish_notes(lines: Iterable[tuple[str, Policy]]) -> Iterator[str]:
    """Yield a note for each student whose distillation began near gibberish."""
    for name, policy in lines:
        start = policy.training.get("start") or {}
        if start.get("gibberish"):
            yield (
                f"{name} started near gibberish: its student had {start['student']:.2f} nats per "
                f"token, the teacher {start['teacher']:.2f}, uniform "
                f"guessing {start['chance']:.2f}."
            )


def _count_text(training: Training, *names: str) -> str:
    counts = training.get("counts") or {}
    return next((str(counts[name]) for name in names if name in counts), "-")


def _devices_text(devices: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} x {name}" for name, n in devices.items()) or "-"


def _tied_text(training: Training) -> str:
    ties = training.get("ties")
    return f"{ties['tied']} of {ties['tasks']}" if ties else "-"


WEIGHTS = {"refit": "r (ReFit)", "centred": "r - mean", "swift": "(r - mean) / std (SWiFt)"}
"""Heads of the weightings whose gradients are compared."""


def variance_table(section: Section) -> Table | None:
    """Return the table of the variance of the first step's gradient under ReFit's and SWiFt's
    weights, a row for each training; None if no training measured it."""
    lines = [
        (policy.name, member.training["gradient"])
        for policy in section.policies
        for member in policy.run_policies
        if member.training.get("gradient")
    ]
    if not lines:
        return None
    columns = [Column("First step of", "First step", numeric=False), Column("rows", "rows")]
    for head in WEIGHTS.values():
        columns += [Column(f"variance, {head}", head), Column("÷ length²", "÷ len²")]
    rows = tuple(
        (Cell(name), Cell(str(measured.get("rows", "-"))), *_variance_cells(measured))
        for name, measured in lines
    )
    notes = (
        "Trace of the covariance of the first step's gradient, with its rows drawn independently, "
        "under three weights of the same rows; then the same over that gradient's own squared "
        "length, which does not depend on the scale of the rewards. The gradient is that of the "
        "output layer's matrix.",
        "r and r - mean are in the reward's unit, (r - mean) / std is in none: compare it by the "
        "second number. The squared length contains the variance, so near 1 or above the rows show "
        "mostly noise.",
    )
    return Table("Variance of the gradient", tuple(columns), rows, notes, "variance")


def _variance_cells(measured: Training) -> Iterator[Cell]:
    for name in WEIGHTS:
        values = measured.get(name) or {}
        variance, norm = values.get("variance"), values.get("squared_norm")
        yield Cell("-" if variance is None else f"{variance:.3g}")
        yield Cell(f"{variance / norm:.3g}" if variance is not None and norm else "-")
