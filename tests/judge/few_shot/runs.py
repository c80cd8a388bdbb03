"""Runs of few-shot self-edits without a model: tasks of the tiny grids, edits written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from convbench import catalog
from convbench.judge import Judge, resolve_judge
from convbench.options.shared import CallOptions, Shape
from convbench.rollout.manifest import make_manifest
from convbench.schema import Conversation, Example, Member, ProtocolSpec, TaskSpec, Turn
from convbench.store import Run
from convbench.tasks.arc_agi.edit import SelfEdit
from convbench.tasks.load import load_examples

QUIET = CallOptions(quiet=True)
POLICY = "local:pocket-grids"
QUICK = {"args.r": 4, "args.max_rows": 4, "args.max_tokens": 12}
CHEAP = SelfEdit(frozenset(), "train_using_output_tokens", 1e-3, 1).written()
"""An edit that takes two steps."""


def quick_judge(**sets: object) -> Judge:
    """The shipped judge of small grids with few rows."""
    return resolve_judge("few-shot-pocket", sets={**QUICK, **sets})


def some_tasks(count: int) -> list[Example]:
    """Tasks of the tiny grids, every second one to test on."""
    found = load_examples(catalog.load(TaskSpec, "tasks", "pocket-grids"), 0).examples[:count]
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
    task = catalog.load(TaskSpec, "tasks", "pocket-grids")
    protocol = catalog.load(ProtocolSpec, "protocols", "self-edit-few-shot")
    cast = {"assistant": Member(model=policy), "teacher": Member(model="script")}
    shape = Shape(samples=2, temperatures=(0.8,))
    run = Run.create(folder, make_manifest(task, protocol, shape, cast), list(examples))
    with run.conversations_file.open("w") as file:
        for name, said in edits.items():
            for sample, edit in enumerate(said):
                file.write(_said(run, name, sample, edit).model_dump_json() + "\n")
    return run


def _said(run: Run, name: str, sample: int, edit: str) -> Conversation:
    turns = (
        Turn(speaker="teacher", step="task", content="x", finish_reason="scripted"),
        Turn(speaker="assistant", step="edit", content=edit),
    )
    return Conversation(
        key=f"{name}#{sample}", conversation_id=f"{run.manifest.id}-{name}-{sample}",
        example_id=name, sample=sample, turns=turns, stop="complete",
        specs=run.manifest.fingerprints["specs"], ended="2026-11-20T10:00:00Z",
    )  # fmt: skip
