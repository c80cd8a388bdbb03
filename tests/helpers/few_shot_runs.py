"""Runs of few-shot self-edits without a model: tasks of the tiny grids, edits written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from convbench import catalog
from convbench.judges.resolve import Judge, resolve_judge
from convbench.options.shared import CallOptions
from convbench.schema import Example, ModelConfig, TaskSpec
from convbench.store import Run
from convbench.tasks.arc_agi.edit import SelfEdit
from convbench.tasks.load import load_examples
from tests.helpers.runs import written_run

QUIET = CallOptions(quiet=True)
POLICY = "local:pocket-grids"
QUICK = {"args.r": 4, "args.max_rows": 4, "args.max_tokens": 12}
CHEAP = SelfEdit(frozenset(), "train_using_output_tokens", 1e-3, 1).to_json()
"""An edit that takes two steps."""


def quick_judge(**sets: object) -> Judge:
    """The shipped judge of small grids with few rows."""
    return resolve_judge("few-shot-pocket", sets={**QUICK, **sets})


def some_tasks(count: int) -> list[Example]:
    """Tasks of the tiny grids, every second one to test on."""
    found = load_examples(catalog.load_spec(TaskSpec, "tasks", "pocket-grids"), 0).examples[:count]
    return [
        e.model_copy(update={"split": "test" if number % 2 else "train"})
        for number, e in enumerate(found)
    ]


def alike(example: Example) -> Example:
    """A task whose outputs are all the same cell, which any training on it learns."""
    inputs = {
        "demonstrations": [{"input": [[i, i + 1]], "output": [[5]]} for i in range(3)],
        "tests": [[[4, 1]]],
    }
    return example.model_copy(
        update={"inputs": {**example.inputs, **inputs}, "hidden": {"outputs": [[[5]]]}}
    )


def edits_run(
    folder: Path,
    examples: Sequence[Example],
    edits: Mapping[str, Sequence[str]],
    policy: str = POLICY,
) -> Run:
    """Write a run whose policy said these edits, by example."""
    member = ModelConfig(model=policy)
    return written_run(folder, ("pocket-grids", "self-edit-few-shot"), member, 0.8, examples, edits)
