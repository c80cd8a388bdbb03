"""Runs of self-edits without a model: passages of the pocket world, edits written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from convbench import catalog
from convbench.judges.resolve import Judge, resolve_judge
from convbench.models.weights_path import check_weights
from convbench.options.shared import CallOptions
from convbench.schema import Example, ModelConfig, Sampling, TaskSpec
from convbench.store import Run
from convbench.tasks.load import load_examples
from tests.helpers.runs import written_run

QUIET = CallOptions(quiet=True)
SENTINEL = "SENTINELPASSAGE"
QUICK = {
    "args.inner.r": 4, "args.inner.alpha": 8, "args.inner.epochs": 4, "args.inner.batch_size": 4,
    "args.inner.target_modules": [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    ],
    "args.inner.seeds": 1, "args.inner.max_tokens": 16,
}  # fmt: skip


def quick_judge(**sets: object) -> Judge:
    """The shipped adaptation judge with few steps."""
    return resolve_judge("adaptation", sets={**QUICK, **sets})


def some_examples(count: int) -> list[Example]:
    """Passages of the pocket world; every one holds the sentinel."""
    task = catalog.load_spec(TaskSpec, "tasks", "pocket-notes")
    found = load_examples(task, 0).examples[:count]
    return [
        e.model_copy(
            update={
                "inputs": {**e.inputs, "passage": f"{SENTINEL} {e.inputs['passage']}"},
                "split": "test" if number % 2 else "train",
            }
        )
        for number, e in enumerate(found)
    ]


def edits_run(
    folder: Path,
    examples: Sequence[Example],
    edits: Mapping[str, Sequence[str]],
    policy: str = "local:pocket",
) -> Run:
    """Write a run whose policy said these edits, by example."""
    member = ModelConfig(model=policy, sampling=Sampling(max_tokens=48))
    return written_run(folder, ("pocket-notes", "self-edit"), member, 1.0, examples, edits)


def pocket() -> Path:
    """The shipped policy's folder."""
    return Path(check_weights("pocket"))
