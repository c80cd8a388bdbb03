"""The report of `train seal`: accuracy after self-edits, and results over many passages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from convbench.judge.adaptation.accuracies import Values
from convbench.judge.adaptation.passages import ForgettingSequence
from convbench.report import forgetting
from convbench.report.markdown import markdown_table
from convbench.report.tables.adaptation import taught_table
from convbench.store.jsonl import write_atomic


def as_markdown(taught: Mapping[str, Values]) -> str:
    """Return these accuracies, keyed by what was trained on, as the report's markdown table."""
    return "\n".join(markdown_table(taught_table(taught)))


def write_seal_report(
    reports: Path,
    taught: Mapping[str, Values],
    pretrained: Mapping[str, Values],
    forgotten: Mapping[str, Sequence[ForgettingSequence]],
) -> Path:
    """Write `seal.json` (accuracies by what was trained on) and `seal.md` (their table, and the
    results over many passages) into a run's folder of reports; return the path of `seal.md`."""
    reports.mkdir(exist_ok=True)
    write_atomic(reports / "seal.json", json.dumps(taught, indent=1).encode() + b"\n")
    path = reports / "seal.md"
    parts = [as_markdown(taught), *_multi_passage_texts(reports, pretrained, forgotten)]
    write_atomic(path, "\n".join(parts).encode())
    return path


def _multi_passage_texts(
    reports: Path,
    pretrained: Mapping[str, Values],
    forgotten: Mapping[str, Sequence[ForgettingSequence]],
) -> Iterator[str]:
    """Yield one text on training with all passages at once, and one a sequence of passages."""
    if pretrained:
        yield f"All passages at once (continued pre-training):\n\n{as_markdown(pretrained)}"
    for name, sequences in forgotten.items():
        text = forgetting.write_forgetting(
            sequences, reports, f"forgetting-{name.replace(' ', '-')}"
        )
        yield f"One passage after the other, {name}:\n\n{text}"
