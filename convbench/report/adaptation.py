"""The report of `train seal`: accuracy after self-edits, and results over many passages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from convbench.errors import MissingDependency
from convbench.judge.adaptation.accuracies import Values
from convbench.judge.adaptation.passages import ForgettingSequence, mean_matrix
from convbench.report.document import Picture
from convbench.report.plots.style import drawing_style, new_figure, save_picture
from convbench.report.tables.adaptation import ACCURACIES, taught_table
from convbench.report.writers import markdown_table, write_pictures
from convbench.store.jsonl import write_atomic

WIDE = 9
"""Fewest passages for which the picture is as wide as the page."""


def forgetting_table(sequences: Sequence[ForgettingSequence]) -> str:
    """Return the mean accuracies (0 to 1, two decimals) as a markdown table, a row for each edit.

    The columns are the passages in the order of the edits, and the mean over those seen so far. If
    every sequence has accuracies from before the first edit, they come first, as row `none`.
    Sequences of different lengths are cut to the shortest. Raise ValueError without a sequence.
    """
    matrix = mean_matrix(sequences)
    heads = [f"passage {j + 1}" for j in range(len(matrix))]
    rows = [f"| after edit | {' | '.join(heads)} | mean |", "|---:|" + "---:|" * (len(heads) + 1)]
    if all(sequence.base for sequence in sequences):
        size = len(matrix)
        base = [fmean(sequence.base[j] for sequence in sequences) for j in range(size)]
        rows.append(f"| none | {' | '.join(f'{b:.2f}' for b in base)} | {fmean(base):.2f} |")
    for number, values in enumerate(matrix):
        cells = [f"{value:.2f}" for value in values] + [""] * (len(heads) - len(values))
        rows.append(f"| {number + 1} | {' | '.join(cells)} | {fmean(values):.2f} |")
    return "\n".join(rows) + "\n"


def draw_forgetting(sequences: Sequence[ForgettingSequence], name: str) -> Picture:
    """Return the mean accuracies by edit and passage as a heat map, each cell with its value.

    Sequences of different lengths are cut to the shortest. Raise MissingDependency without
    matplotlib, ValueError without a sequence.
    """
    matrix = mean_matrix(sequences)
    size = len(matrix)
    values = [[*row, *[float("nan")] * (size - len(row))] for row in matrix]
    with drawing_style():
        figure = new_figure(3.0 if size < WIDE else 5.5, panels=1 if size < WIDE else 2)
        axes = figure.subplots()
        axes.grid(visible=False)
        image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis")
        axes.set_xlabel("passage, in the order of the edits")
        axes.set_ylabel("after edit")
        axes.set_xticks(range(size), [str(i + 1) for i in range(size)])
        axes.set_yticks(range(size), [str(i + 1) for i in range(size)])
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                colour = "white" if value < 0.6 else "black"
                axes.text(
                    j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=6.5
                )
        many = f", mean over {len(sequences)} sequences" if len(sequences) > 1 else ""
        figure.colorbar(image, ax=axes, label=f"accuracy, closed book{many}")
        caption = (
            "Accuracy on each passage after each edit, closed book, mean over "
            f"{len(sequences)} sequence{'' if len(sequences) == 1 else 's'}."
        )
        return save_picture(figure, name, caption)


def write_forgetting(sequences: Sequence[ForgettingSequence], folder: Path, name: str) -> str:
    """Write the table of mean accuracies as NAME.md and its heat map as NAME.svg, .pdf and .png;
    return the markdown.

    The folder is created if its parent exists. Without matplotlib no picture is written, and a line
    of the markdown says so.
    """
    folder.mkdir(exist_ok=True)
    text = forgetting_table(sequences)
    try:
        shown = f"![{name}]({name}.png)"
        write_pictures([draw_forgetting(sequences, name)], folder)
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

    `self-edits.json` maps what was trained on to its (passage, accuracy) pairs. `seal.md` has their
    table, that of `pretrained` if it is not empty, and a table and heat map for each entry of
    `forgotten`, which are also written as `forgetting-ROW.md` with pictures
    (`forgetting-LABEL-ROW.md`).
    """
    reports.mkdir(exist_ok=True)
    suffix = f"-{label}" if label else ""
    accuracies = (reports / ACCURACIES).with_stem(f"{Path(ACCURACIES).stem}{suffix}")
    write_atomic(accuracies, json.dumps(taught, indent=1).encode() + b"\n")
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
