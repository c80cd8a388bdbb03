"""What self-edits taught: accuracies read from verdicts, and the table that `train seal` leaves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from convbench.judge import Judge
from convbench.report.markdown import markdown_table
from convbench.report.tables.adaptation import Values, taught_table
from convbench.store import Run
from convbench.store.jsonl import write_whole


def accuracies(run: Run, judge: Judge, split: str = "test") -> Values:
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


def as_markdown(taught: Mapping[str, Values]) -> str:
    """Return the report's table of these accuracies."""
    return "\n".join(markdown_table(taught_table(taught)))


def write(run: Run, taught: Mapping[str, Values], more: Iterable[str] = ()) -> Path:
    """Write the accuracies, their table and more text into the run's reports."""
    run.reports.mkdir(exist_ok=True)
    write_whole(run.reports / "seal.json", json.dumps(taught, indent=1).encode() + b"\n")
    path = run.reports / "seal.md"
    write_whole(path, "\n".join([as_markdown(taught), *more]).encode())
    return path
