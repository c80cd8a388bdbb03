"""The report of `train seal`: accuracy after self-edits, and results over many passages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from convbench.errors import MissingDependency
from convbench.judges.adaptation.accuracies import Values
from convbench.judges.adaptation.passages import ForgettingSequence
from convbench.reports.plots.forgetting import draw_forgetting
from convbench.reports.plots.style import drawing_style
from convbench.reports.tables.adaptation import ACCURACIES, taught_table
from convbench.reports.tables.many_passages import PRETRAINING, SEQUENCES, forgetting_table
from convbench.reports.writers import markdown_table, write_pictures
from convbench.store.jsonl import write_atomic


def write_forgetting(sequences: Sequence[ForgettingSequence], folder: Path, name: str) -> str:
    """Write the table of mean accuracies as NAME.md and its heat map as NAME.svg, .pdf and .png;
    return the markdown.

    The folder is created if its parent exists. Without matplotlib no picture is written, and a line
    of the markdown says so.
    """
    folder.mkdir(exist_ok=True)
    text = "\n".join(markdown_table(forgetting_table(sequences)))
    try:
        shown = f"![{name}]({name}.png)"
        with drawing_style():
            write_pictures([draw_forgetting({name: sequences}, name)], folder)
    except MissingDependency as error:
        shown = f"No picture: {error}"
    text = f"{text}\n{shown}\n"
    write_atomic(folder / f"{name}.md", text.encode())
    return text


def as_markdown(taught: Mapping[str, Values]) -> str:
    """Return the table of these accuracies, a row for each key (what was trained on), as Markdown
    with its notes."""
    return "\n".join(markdown_table(taught_table(taught)))


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
    and `sequences` it has what was measured over many passages. `seal.md` has the table of the
    former, that of `pretrained` if it is not empty, and a table and heat map for each entry of
    `forgotten`, which are also written as `forgetting-ROW.md` with pictures
    (`forgetting-LABEL-ROW.md`).
    """
    reports.mkdir(exist_ok=True)
    stored: dict[str, Any] = dict(taught)
    if pretrained:
        stored[PRETRAINING] = pretrained
    if forgotten:
        stored[SEQUENCES] = {name: list(map(asdict, some)) for name, some in forgotten.items()}
    suffix = f"-{label}" if label else ""
    accuracies = (reports / ACCURACIES).with_stem(f"{Path(ACCURACIES).stem}{suffix}")
    write_atomic(accuracies, json.dumps(stored, indent=1).encode() + b"\n")
    path = reports / f"seal{suffix}.md"
    parts = [as_markdown(taught), *_multi_passage_texts(reports, pretrained, forgotten, suffix)]
    write_atomic(path, "\n".join(parts).encode())
    return path


def _multi_passage_texts(
    reports: Path,
    pretrained: Mapping[str, Values],
    forgotten: Mapping[str, Sequence[ForgettingSequence]],
    suffix: str,
) -> Iterator[str]:
    """Yield one text on training with all passages at once, and one a sequence of passages."""
    if pretrained:
        yield f"All passages at once (continued pre-training):\n\n{as_markdown(pretrained)}"
    for name, sequences in forgotten.items():
        text = write_forgetting(sequences, reports, f"forgetting{suffix}-{name.replace(' ', '-')}")
        yield f"One passage after the other, {name}:\n\n{text}"
