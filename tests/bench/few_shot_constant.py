"""What one self-edit solves, the same for all tasks: the control of few-shot self-edits.

    python -m tests.bench.few_shot_constant TOOLS RATE EPOCHS [SEEDS]

TOOLS is a list by commas (`chain`, `basic,size`) or `none`. Prints, for the test tasks of each seed
of `convbench experiment pocket-few-shot`, how many the shipped policy of small grids solves after
training as that one edit says, on output tokens.
"""

from __future__ import annotations

import sys
from typing import get_args

from convbench import catalog
from convbench.judge.adaptation.learner import Learner
from convbench.judge.few_shot.runner import outputs_of, problem_of, settings_of
from convbench.judge.few_shot.solve import Solver
from convbench.judge.resolve import resolve_judge
from convbench.models.where import where
from convbench.schema import TaskSpec
from convbench.tasks.arc_agi.edit import SelfEdit
from convbench.tasks.arc_agi.tools import Group
from convbench.tasks.load import load_examples


def solved(solver: Solver, edit: SelfEdit, seed: int) -> list[bool]:
    """Return whether each test task of a seed is solved."""
    drawn = load_examples(catalog.load(TaskSpec, "tasks", "pocket-grids"), seed).examples
    return [
        solver.adapted(problem_of(one), edit).right(outputs_of(one))
        for one in drawn if one.split == "test"
    ]  # fmt: skip


def main() -> None:
    """Print one line a seed."""
    tools, rate, epochs, *rest = sys.argv[1:]
    groups = frozenset(one for one in get_args(Group) if one in tools.split(","))
    edit = SelfEdit(groups, "train_using_output_tokens", float(rate), int(epochs))
    settings = settings_of(resolve_judge("few-shot-pocket"))
    solver = Solver(Learner.load(where("pocket-grids")), settings)
    for seed in range(int(rest[0]) if rest else 3):
        found = solved(solver, edit, seed)
        print(f"seed {seed}: {sum(found)} of {len(found)}", flush=True)


if __name__ == "__main__":
    main()
