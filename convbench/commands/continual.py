"""Several passages into one policy: at once (continued pre-training), or one after the other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench.adapt.continual import Forgetting, Lesson, averaged, continual
from convbench.adapt.learner import Outcome
from convbench.adapt.texts import training_texts
from convbench.commands.adaptation import (
    Runner,
    cache_of,
    edit_of,
    open_runner,
    settings_of,
)
from convbench.errors import DataError, MissingDependency, RunError
from convbench.judge import Judge
from convbench.schema import Example
from convbench.store import Run
from convbench.store.jsonl import write_whole

CPT: Mapping[str, Any] = {"epochs": 3, "learning_rate": 1e-3, "batch_size": 4, "accumulation": 2}
"""Continued pre-training of Zweiger et al. 2025 (SEAL); 5 completions a passage."""


@dataclass(frozen=True)
class Passage:
    """A passage with the texts of its self-edits, and the lesson that they make."""

    example: Example
    edits: tuple[str, ...]


def passages(run: Run, split: str = "test", edits: int = 1) -> list[Passage]:
    """Return a split's passages with their first self-edits; RunError where there are none."""
    said: dict[str, list[tuple[int, str]]] = {}
    for conversation in run.conversations():
        if conversation.failure is None:
            edit = edit_of(run.manifest.protocol, conversation)
            said.setdefault(conversation.example_id, []).append((conversation.sample, edit))
    found = [
        Passage(example, tuple(edit for _, edit in sorted(said[name])[:edits]))
        for name, example in run.examples.items()
        if example.split == split and name in said
    ]
    if not found:
        raise RunError(f"{run.path}: found no self-edit on split {split}; build it first")
    return found


def texts_of(runner: Runner, passage: Passage, *, alone: bool = False) -> list[str]:
    """Return a passage's texts: its edits' lines and itself, or (`alone`) itself. An edit without
    a line adds nothing."""
    inner = runner.settings.inner
    title, text = (str(passage.example.inputs.get(name, "")) for name in ("title", "passage"))
    found: dict[str, None] = {}
    for edit in passage.edits if not alone else ():
        try:
            found.update(dict.fromkeys(training_texts(edit, title, text, inner)))
        except DataError:
            continue
    found[text] = None
    return list(found)


def pretrained(
    run: Run, judge: Judge, *, edits: int = 5, alone: bool = False, split: str = "test",
    **inner: Any,
) -> Outcome:  # fmt: skip
    """Return what all passages of a split teach in one training (continued pre-training).

    `inner` replaces values of the paper's settings, `alone` trains on the passages only.
    """
    settings = settings_of(judge)
    new = settings.inner.model_copy(update={**CPT, **inner})
    with run.lock(), cache_of(run) as kept:
        runner = open_runner(run, settings.model_copy(update={"inner": new}), kept)
        found = passages(run, split, edits)
        texts = [text for one in found for text in texts_of(runner, one, alone=alone)]
        asked = [q for one in found for q in runner.questions(one.example)]
        return runner.kept_or_adapted(texts, asked)


def forgetting(
    run: Run,
    judge: Judge,
    *,
    sequences: int = 8,
    length: int = 8,
    alone: bool = False,
    split: str = "test",
) -> list[Forgetting]:
    """Return the sequences of continual self-edits, passages drawn with the run's seed."""
    settings = settings_of(judge)
    with run.lock(), cache_of(run) as kept:
        runner = open_runner(run, settings, kept)
        found = passages(run, split)
        if len(found) < length:
            raise RunError(
                f"{run.path}: found {len(found)} passages of split {split}; expected {length}"
            )
        out = []
        for number in range(sequences):
            drawn = random.Random(f"{run.manifest.seed}/{number}").sample(found, length)
            lessons = [_lesson(runner, one, alone) for one in drawn]
            out.append(continual(runner.ready(), lessons, settings.inner, runner.graded()))
        return out


def _lesson(runner: Runner, passage: Passage, alone: bool) -> Lesson:
    questions = runner.questions(passage.example)
    texts = texts_of(runner, passage, alone=alone)
    return Lesson(passage.example.example_id, tuple(texts), tuple(questions))


def table(found: Sequence[Forgetting]) -> str:
    """Return the mean forgetting matrix as markdown: one row an edit, one column a passage in
    the order of the edits, and the mean over the passages seen so far."""
    matrix = averaged(found)
    heads = [f"passage {j + 1}" for j in range(len(matrix))]
    rows = [f"| after edit | {' | '.join(heads)} | mean |", "|---:|" + "---:|" * (len(heads) + 1)]
    for number, values in enumerate(matrix):
        cells = [f"{value:.2f}" for value in values] + [""] * (len(heads) - len(values))
        rows.append(f"| {number + 1} | {' | '.join(cells)} | {fmean(values):.2f} |")
    return "\n".join(rows) + "\n"


def picture(found: Sequence[Forgetting], path: Path) -> Path:
    """Draw the mean matrix as a PNG; MissingDependency without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency(
            "matplotlib", needed_for="the picture", install="pip install matplotlib"
        ) from None
    matrix = averaged(found)
    size = len(matrix)
    values = [[*row, *[float("nan")] * (size - len(row))] for row in matrix]
    figure = Figure(figsize=(0.6 * size + 2, 0.6 * size + 1))
    axes = figure.subplots()
    image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis")
    axes.set_xlabel("passage, in the order of the edits")
    axes.set_ylabel("after edit")
    axes.set_xticks(range(size), [str(i + 1) for i in range(size)])
    axes.set_yticks(range(size), [str(i + 1) for i in range(size)])
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            colour = "white" if value < 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=axes, label="accuracy, closed book")
    figure.savefig(path, dpi=150, bbox_inches="tight")
    return path


def write(found: Sequence[Forgetting], run: Run, name: str = "forgetting") -> list[Path]:
    """Write table and, where matplotlib is there, picture into the run's reports."""
    run.reports.mkdir(exist_ok=True)
    files = [run.reports / f"{name}.md"]
    write_whole(files[0], table(found).encode())
    try:
        files.append(picture(found, run.reports / f"{name}.png"))
    except MissingDependency:
        return files
    return files
