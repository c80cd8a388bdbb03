"""What `train seal` writes: accuracies after learning from self-edits, and over many passages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from convbench.judges.adaptation.accuracies import Values
from convbench.judges.adaptation.passages import ForgettingSequence
from convbench.reports.document import Column, Row, Table
from convbench.reports.selfedits import PRETRAINING, SEQUENCES, Lessons, forgetting_table
from convbench.reports.write import markdown_table
from convbench.stats.estimates import estimate
from convbench.store.jsonl import write_atomic

ACCURACIES = "self-edits"
"""Stem of the JSON file, which reports read."""


def write_seal_report(
    reports: Path,
    taught: Mapping[str, Values],
    pretrained: Mapping[str, Values],
    forgotten: Mapping[str, Sequence[ForgettingSequence]],
    label: str = "",
) -> Path:
    """Write `self-edits.json` and `seal.md` into a run's folder of reports, and return the path of
    `seal.md`; with a label they are `self-edits-LABEL.json` and `seal-LABEL.md`.

    `self-edits.json` maps what was trained on to its (passage, accuracy) pairs; under `pretraining`
    and `sequences` it has what was measured over many passages.
    """
    reports.mkdir(exist_ok=True)
    stored: dict[str, Any] = dict(taught)
    if pretrained:
        stored[PRETRAINING] = pretrained
    if forgotten:
        stored[SEQUENCES] = {name: list(map(asdict, some)) for name, some in forgotten.items()}
    suffix = f"-{label}" if label else ""
    data = json.dumps(stored, indent=1).encode() + b"\n"
    write_atomic(reports / f"{ACCURACIES}{suffix}.json", data)
    path = reports / f"seal{suffix}.md"
    text = "\n".join(_tables(taught, pretrained, forgotten))
    write_atomic(path, text.encode())
    return path


def _tables(
    taught: Mapping[str, Values],
    pretrained: Mapping[str, Values],
    forgotten: Mapping[str, Sequence[ForgettingSequence]],
) -> Iterator[str]:
    yield as_markdown(taught)
    if pretrained:
        yield f"All passages at once (continued pre-training):\n\n{as_markdown(pretrained)}"
    for name, sequences in forgotten.items():
        lessons = [Lessons(sequence.after, sequence.base) for sequence in sequences]
        table = forgetting_table(name, lessons)
        yield f"{table.caption}:\n\n" + "\n".join(markdown_table(table))


def as_markdown(taught: Mapping[str, Values]) -> str:
    """Return the means of these accuracies with their errors, a row for each key, as Markdown."""
    rows = []
    for name, values in taught.items():
        passages = [passage for passage, _ in values]
        mean = estimate(passages, [value for _, value in values])
        rows.append(Row((name, mean, len(values), len(set(passages)))))
    columns = (
        Column("policy", "Trained on", text=True),
        Column("accuracy", "Accuracy", digits=3),
        Column("adaptations", "adaptations"),
        Column("passages", "passages"),
    )
    notes = ("Closed-book accuracy after training on it, mean ± standard error by passage.",)
    return "\n".join(markdown_table(Table("self-edits", "", columns, tuple(rows), notes)))
