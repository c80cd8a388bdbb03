"""What one self-edit solves, the same for all tasks: the control of few-shot self-edits.

    python -m tests.bench.few_shot_constant TOOLS RATE EPOCHS [SEEDS]
    python -m tests.bench.few_shot_constant search

TOOLS is a list by commas (`chain`, `basic,size`) or `none`. Prints, for the test tasks of each seed
of `convbench experiment pocket-few-shot`, how many the shipped policy of small grids solves after
training as that one edit says, on output tokens.

`search` looks for the edit on the 36 train tasks of the three seeds alone: every candidate on a
third of them, the best on all. Then it prints for each of these what it solves of the train tasks
and of the 24 test tasks; the first line is the edit that the train tasks choose.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from typing import get_args

from convbench import catalog
from convbench.judges.adaptation.learner import Learner
from convbench.judges.few_shot.runner import outputs_of, problem_of, settings_of
from convbench.judges.few_shot.solve import Solver
from convbench.judges.resolve import resolve_judge
from convbench.models.weights_path import check_weights
from convbench.schema import Example, TaskSpec
from convbench.tasks.arc_agi.edit import Group, SelfEdit
from convbench.tasks.load import load_examples

TOOLS: tuple[tuple[Group, ...], ...] = (("size",), ("chain",), ("size", "chain"))
"""What `size`, `chain` and `repeat` make of a task differs in what is drawn alone; `basic` turns
its rule into others."""
RATES = (5e-3, 1e-2)
EPOCHS = (9, 12, 15)
"""Fifteen epochs of fifty rows are as many steps as an edit may ask for."""
SEEDS = 3
ON_ALL = 4
"""Candidates that are tried on all train tasks."""


def solved(solver: Solver, edit: SelfEdit, tasks: Sequence[Example]) -> int:
    """Return how many tasks are solved."""
    return sum(solver.try_adapted(problem_of(one), edit).is_right(outputs_of(one)) for one in tasks)


def tasks_of(seed: int, split: str) -> list[Example]:
    """Return the tasks of a split that a seed draws."""
    drawn = load_examples(catalog.load_spec(TaskSpec, "tasks", "pocket-grids"), seed).examples
    return [one for one in drawn if one.split == split]


def constant(tools: Sequence[Group], rate: float, epochs: int) -> SelfEdit:
    """Return an edit with its loss on output tokens."""
    return SelfEdit(frozenset(tools), "train_using_output_tokens", rate, epochs)


def search(solver: Solver) -> None:
    """Print the best edits by the train tasks, best first, and what they solve of the tests."""
    train, test = ([one for seed in range(SEEDS) for one in tasks_of(seed, split)]
                   for split in ("train", "test"))  # fmt: skip
    edits = [constant(*parts) for parts in product(TOOLS, RATES, EPOCHS)]
    some = {edit: solved(solver, edit, train[::3]) for edit in edits}
    best = sorted(edits, key=some.__getitem__, reverse=True)[:ON_ALL]
    every = {edit: solved(solver, edit, train) for edit in best}
    for edit in sorted(best, key=every.__getitem__, reverse=True):
        said = f"{','.join(sorted(edit.groups))} {edit.learning_rate:g} {edit.epochs}"
        found = solved(solver, edit, test)
        counts = f"{every[edit]} of {len(train)} train tasks, {found} of {len(test)} test tasks"
        print(f"{said}: {counts}", flush=True)


def main() -> None:
    """Print one line a seed, or one a candidate."""
    tools, *rest = sys.argv[1:]
    settings = settings_of(resolve_judge("few-shot-pocket"))
    solver = Solver(Learner.load(check_weights("pocket-grids")), settings)
    if tools == "search":
        search(solver)
        return
    rate, epochs, *seeds = rest
    groups = [one for one in get_args(Group) if one in tools.split(",")]
    for seed in range(int(seeds[0]) if seeds else SEEDS):
        tasks = tasks_of(seed, "test")
        edit = constant(groups, float(rate), int(epochs))
        print(f"seed {seed}: {solved(solver, edit, tasks)} of {len(tasks)}", flush=True)


if __name__ == "__main__":
    main()
