"""Adaptations: how many a minute on the pocket policy, and what is not forward or backward."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from convbench import catalog
from convbench.judges.adaptation.learner import Learner, Question
from convbench.judges.adaptation.settings import InnerSettings, training_texts
from convbench.models.weights_path import check_weights
from convbench.pocket import notes
from convbench.pocket.rows import load
from convbench.pocket.world import make_world
from convbench.schema import JudgeSpec
from tests.bench.bench import Row
from tests.lab.pocket import edits

COUNT = 20


def adaptations(folder: Path) -> Iterator[Row]:
    """Faithful self-edits of the pocket world's first passages, as judge `adaptation-pocket`
    adapts to them: two seeds each, 15 passes over 5 texts, 4 questions."""
    del folder
    spec = catalog.load_spec(JudgeSpec, "judges", "adaptation-pocket")
    inner = InnerSettings.model_validate(spec.args["inner"])
    learner = Learner.load(check_weights("pocket"), "cpu")
    known = notes.make_notes(make_world(), 0)
    rows = [row for row in load(seed=0, kind="notes") if row["split"] == "train"][: COUNT + 1]
    took = passes = 0.0
    for number, row in enumerate(rows):
        note = known[int(row["id"].partition("-")[2])]
        edit = edits.good_edit(note, "implications")
        texts = training_texts(edit, row["title"], row["passage"], inner)
        started = time.perf_counter()
        found = learner.adapt_to(texts, _questions(row), inner, before=0.0)
        if number:  # the first one warms up
            took += time.perf_counter() - started
            passes += found.passes
    yield Row(
        "adaptations a minute, pocket policy", 60 * COUNT / took, "", 40.0, 100.0, at_least=True
    )
    yield Row("adaptation outside forward and backward", 1 - passes / took, "", 0.30)


def _questions(row: dict[str, object]) -> list[Question]:
    asked: list[dict[str, str]] = row["questions"]  # type: ignore[assignment]
    return [
        Question(
            ({"role": "user", "content": f"Topic: {row['title']}\n{item['question']}"},),
            (item["answer"],),
        )
        for item in asked
    ]
