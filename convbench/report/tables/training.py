"""How the checkpoints of a section were trained: rows and their unit, steps, ties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from convbench.report.document import Cell, Column, Table
from convbench.report.policies import Policy
from convbench.report.sections import Section

Training = Mapping[str, Any]
"""A checkpoint's `training.json`."""

COLUMNS: tuple[tuple[str, Callable[[Training], str]], ...] = (
    ("row", lambda t: str(t.get("unit", "-"))),
    ("rows", lambda t: _count(t, "rows", "pairs")),
    ("steps", lambda t: str(t.get("steps", "-"))),
    ("tied questions", lambda t: _tied(t)),
    ("ties", lambda t: str((t.get("ties") or {}).get("rule", "-"))),
)
NOTES = (
    "A row is what a batch holds: a conversation, a turn under its history, or a pair. Tied "
    "questions have several best (or worst) conversations where one was wanted, of those that "
    "were looked at; `ties` says what became of them.",
)


def training_table(section: Section) -> Table | None:
    """Return how each checkpoint was trained, a line a run where several are pooled; None where no
    `training.json` that tells it lies here."""
    lines = [
        (policy.name, member)
        for policy in section.policies
        for member in (policy.members or (policy,))
        if member.training.get("unit")
    ]
    if not lines:
        return None
    columns = (
        Column("Training", "Method", numeric=False),
        *(Column(name, name, numeric=name not in ("row", "ties")) for name, _ in COLUMNS),
    )
    rows = tuple(_line(name, member) for name, member in lines)
    return Table("Training", columns, rows, (*NOTES, *_starts(lines)), "training")


def _starts(lines: Iterable[tuple[str, Policy]]) -> Iterator[str]:
    """Yield the students whose distillation began near gibberish."""
    for name, policy in lines:
        start = policy.training.get("start") or {}
        if start.get("gibberish"):
            yield (
                f"{name} began near gibberish: its student had {start['student']:.2f} nats per "
                f"token, the teacher {start['teacher']:.2f}, a blind guess {start['chance']:.2f}."
            )


def _line(name: str, policy: Policy) -> tuple[Cell, ...]:
    return Cell(name), *(Cell(tell(policy.training)) for _, tell in COLUMNS)


def _count(training: Training, *names: str) -> str:
    counts = training.get("counts") or {}
    return next((str(counts[name]) for name in names if name in counts), "-")


def _tied(training: Training) -> str:
    ties = training.get("ties")
    return f"{ties['tied']} of {ties['tasks']}" if ties else "-"
