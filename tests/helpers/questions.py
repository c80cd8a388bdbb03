"""Shipped tasks, rows and drawn questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from convbench import catalog
from convbench.schema import Example, TaskSpec
from convbench.tasks.draw import SPLITS, QuestionPool, choose_questions, example_of
from convbench.tasks.mapping import TaskQuestion


def task(name: str, **sets: Any) -> TaskSpec:
    """Return a shipped task with some values replaced."""
    return catalog.load_spec(
        TaskSpec, "tasks", name, sets={k.replace("__", "."): v for k, v in sets.items()}
    )


def arc(labels: str, gold: str, **more: Any) -> dict[str, Any]:
    """A row of our own in ARC's schema."""
    choices = {"text": [f"option {x}" for x in labels], "label": list(labels)}
    return {"id": "ours", "question": "Which?", "choices": choices, "answerKey": gold, **more}


def draw(
    task: TaskSpec,
    questions: Sequence[TaskQuestion],
    seed: int,
    rejected: Counter[str] | None = None,
) -> list[Example]:
    """Return the drawn examples, as `load_examples` makes them of what was chosen."""
    found = QuestionPool()
    assert [found.add(item) for item in questions] == list(range(len(questions)))
    counted = Counter() if rejected is None else rejected
    chosen, splits = choose_questions(task, found, seed, counted)
    return [example_of(task, questions[n], SPLITS[s]) for n, s in zip(chosen, splits, strict=True)]
