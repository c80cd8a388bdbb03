"""The table that `train seal` leaves: what self-edits taught, and what many passages came to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from convbench.judge.adaptation.accuracies import Values
from convbench.learn.seal import SealResult
from convbench.report import forgetting
from convbench.report.markdown import markdown_table
from convbench.report.tables.adaptation import taught_table
from convbench.store.jsonl import write_whole


def as_markdown(taught: Mapping[str, Values]) -> str:
    """Return the report's table of these accuracies."""
    return "\n".join(markdown_table(taught_table(taught)))


def write(result: SealResult) -> Path:
    """Write the accuracies, their table, and what was measured of many passages into the run's
    reports; return the table's file."""
    reports = result.rounds.run.reports
    reports.mkdir(exist_ok=True)
    write_whole(reports / "seal.json", json.dumps(result.taught, indent=1).encode() + b"\n")
    path = reports / "seal.md"
    write_whole(path, "\n".join([as_markdown(result.taught), *_many(result, reports)]).encode())
    return path


def _many(result: SealResult, reports: Path) -> Iterator[str]:
    """Yield what all passages at once, and one after the other, came to."""
    if result.pretrained:
        yield f"All passages at once (continued pre-training):\n\n{as_markdown(result.pretrained)}"
    for name, found in result.forgetting.items():
        text = forgetting.write(found, reports, f"forgetting-{name.replace(' ', '-')}")
        yield f"One passage after the other, {name}:\n\n{text}"
