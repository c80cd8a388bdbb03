"""The picture of forgetting: accuracy on each passage after each edit, as heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convbench.judges.adaptation.passages import ForgettingSequence, mean_matrix
from convbench.reports.document import Picture
from convbench.reports.plots.style import current_page, new_figure, save_picture

WIDE = 9
"""Fewest passages for which one heat map is as wide as the page."""
ACROSS = 3
"""Most heat maps beside each other."""


def draw_forgetting(by_name: Mapping[str, Sequence[ForgettingSequence]], name: str) -> Picture:
    """Return a heat map of mean accuracies by edit and passage for each kind of training data, each
    cell with its value; `name` is the picture's file stem.

    Sequences of different lengths are cut to the shortest of their kind. Raise ValueError without
    a sequence.
    """
    matrices = {of: mean_matrix(sequences) for of, sequences in by_name.items()}
    size = max(map(len, matrices.values()))
    across = 1 if size >= WIDE else current_page().panels_across(len(matrices), ACROSS)
    down = -(-len(matrices) // across)
    height = 5.5 if size >= WIDE else 2.3 if across > 1 else 3.0
    figure = new_figure(height * down, panels=2 if size >= WIDE else across)
    grid: Any = figure.subplots(down, across, squeeze=False)
    image: Any = None
    for index, (of, matrix) in enumerate(matrices.items()):
        axes = grid[index // across][index % across]
        image = _draw_matrix(axes, matrix, across == 1)
        if len(matrices) > 1:
            axes.set_title(of)
    for index in range(len(matrices), across * down):
        grid[index // across][index % across].set_axis_off()
    count = max(map(len, by_name.values()))
    figure.colorbar(image, ax=grid, label="accuracy, closed book")
    caption = (
        "Accuracy on each passage, in the order of the edits, after each edit, closed book, mean "
        f"over {count} sequence{'' if count == 1 else 's'}."
    )
    return save_picture(figure, name, caption)


def _draw_matrix(axes: Any, matrix: Sequence[Sequence[float]], alone: bool) -> Any:
    """Draw one matrix, in smaller type unless it is alone in its row; return its image, for the
    colour bar."""
    font = 6.5 if alone else 5.0
    size = len(matrix)
    values = [[*row, *[float("nan")] * (size - len(row))] for row in matrix]
    axes.grid(visible=False)
    image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis")
    axes.set_xlabel("passage, in the order of the edits" if alone else "passage")
    axes.set_ylabel("after edit")
    axes.set_xticks(range(size), [str(i + 1) for i in range(size)])
    axes.set_yticks(range(size), [str(i + 1) for i in range(size)])
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            colour = "white" if value < 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=font)
    return image
