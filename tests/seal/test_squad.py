"""SQuAD by passage."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench import catalog
from convbench.schema import TaskSpec
from convbench.tasks.load import load_examples
from convbench.tasks.squad import passages

DATA = Path(__file__).resolve().parents[3] / "shared/data/hub/rajpurkar__squad/plain_text"
ROWS = [
    {"title": "A_B", "context": "One. ", "question": "q1", "answers": {"text": ["x", "x", "y"]}},
    {"title": "A_B", "context": "One.", "question": "q2", "answers": {"text": ["z"]}},
    {"title": "A_B", "context": "Two.", "question": "q3", "answers": {"text": []}},
    {"title": "A_B", "context": "Two.", "question": "q4", "answers": {"text": ["w"]}},
]


def test_questions_about_one_context_are_one_row() -> None:
    rejected, one, two = passages(ROWS, seed=0)
    assert rejected == {"reject": "no answer in the passage"}
    assert (one["title"], one["context"]) == ("A B", "One.")
    assert [q["question"] for q in one["questions"]] == ["q1", "q2"]
    assert one["questions"][0] == {"question": "q1", "answer": "x", "answers": ["x", "y"]}
    assert [q["question"] for q in two["questions"]] == ["q4"]


def test_the_passages_of_two_articles() -> None:
    if not (DATA / "validation.parquet").exists():
        pytest.skip("no SQuAD rows beside the project")
    task = catalog.load(TaskSpec, "tasks", "squad", sets={"source.file": str(DATA)})
    loaded = load_examples(task, 0)
    assert loaded.rows == 1037
    assert {s: sum(e.split == s for e in loaded.examples) for s in ("train", "test")} == {
        "train": 50, "test": 50,
    }  # fmt: skip
    assert sum(len(e.hidden["questions"]) for e in loaded.examples) == 1037
    assert {e.inputs["title"] for e in loaded.examples} == {"Super Bowl 50", "Warsaw"}
    assert all(e.group_id == e.example_id for e in loaded.examples)
