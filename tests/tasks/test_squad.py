"""SQuAD by passage."""

from __future__ import annotations

from convbench import catalog
from convbench.schema import TaskSpec
from convbench.tasks.load import load_examples
from convbench.tasks.squad import passages
from tests.helpers.excerpts import Source

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


def test_the_passages_of_two_articles(hub_rows: Source) -> None:
    count = hub_rows.pick(6, 100)
    sets = {"source.file": str(hub_rows.place / "rajpurkar__squad/plain_text")}
    task = catalog.load_spec(TaskSpec, "tasks", "squad", sets={**sets, "sample.count": count})
    loaded = load_examples(task, 0)
    assert loaded.rows == hub_rows.pick(15, 1037)
    assert loaded.rejected == hub_rows.pick({"no answer in the passage": 1}, {})
    assert {s: sum(e.split == s for e in loaded.examples) for s in ("train", "test")} == {
        "train": count // 2, "test": count // 2,
    }  # fmt: skip
    assert sum(len(e.hidden["questions"]) for e in loaded.examples) == hub_rows.pick(14, 1037)
    assert {e.inputs["title"] for e in loaded.examples} == hub_rows.pick(
        {"Windmill of Aldery", "Lake Sørvann"}, {"Super Bowl 50", "Warsaw"}
    )
    assert all(e.group_id == e.example_id for e in loaded.examples)
