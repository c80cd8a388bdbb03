"""The table that `train seal` leaves: what self-edits taught, and what many passages came to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from convbench.judge.adaptation.accuracies import Values
from convbench.judge.adaptation.passages import Forgetting
from convbench.report import forgetting
from convbench.report.markdown import markdown_table
from convbench.report.tables.adaptation import taught_table
from convbench.store.jsonl import write_whole


def as_markdown(taught: Mapping[str, Values]) -> str:
    """Return the report's table of these accuracies."""
    return "\n".join(markdown_table(taught_table(taught)))


def write(
    reports: Path,
    taught: Mapping[str, Values],
    pretrained: Mapping[str, Values],
    forgotten: Mapping[str, Sequence[Forgetting]],
) -> Path:
    """Write accuracies by what was trained on, their table, and what was measured of many passages
    into a run's folder of reports; return the table's file."""
    reports.mkdir(exist_ok=True)
    write_whole(reports / "seal.json", json.dumps(taught, indent=1).encode() + b"\n")
    path = reports / "seal.md"
    parts = [as_markdown(taught), *_many(reports, pretrained, forgotten)]
    write_whole(path, "\n".join(parts).encode())
    return path


def _many(
    reports: Path, pretrained: Mapping[str, Values], forgotten: Mapping[str, Sequence[Forgetting]]
) -> Iterator[str]:
    """Yield what all passages at once, and one after the other, came to."""
    if pretrained:
        yield f"All passages at once (continued pre-training):\n\n{as_markdown(pretrained)}"
    for name, sequences in forgotten.items():
        text = forgetting.write(sequences, reports, f"forgetting-{name.replace(' ', '-')}")
        yield f"One passage after the other, {name}:\n\n{text}"
