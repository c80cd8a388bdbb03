"""Baselines of few-shot self-edits: in-context learning, the best known settings, and a control.

The control is one edit for all tasks, with the most frequent choices of the solved train tasks'
edits: the result of SEAL if its policy learnt which edits are good, and nothing about the task that
it writes for. Tasks that SEAL solves beyond it are due to edits that fit their tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from convbench.judges.adaptation.accuracies import NOTHING, Values
from convbench.judges.few_shot.runner import cache_of, open_runner, outputs_of, settings_of
from convbench.judges.few_shot.solve import Trial
from convbench.judges.resolve import Judge
from convbench.schema import Example
from convbench.store import Run
from convbench.tasks.arc_agi.edit import SelfEdit

ORACLE = "best known settings (oracle)"
T = TypeVar("T", bound=Hashable)
CONTROL = "one edit for all tasks (control)"


def baseline_values(run: Run, judge: Judge) -> dict[str, Values]:
    """Return (task, 1 if it was solved, else 0) of the run's test tasks for each baseline, by its
    label: the unadapted policy, the best known edit, and, if a train task was solved, one edit for
    all tasks.

    The task is its group id. Takes the run's lock; finished trials come from the cache, and new
    ones are added to it.
    """
    examples = [example for example in run.examples.values() if example.split == "test"]
    with run.lock(), cache_of(run) as cache:
        runner = open_runner(run, settings_of(judge), cache)
        ways: dict[str, Callable[[Example], Trial]] = {
            NOTHING: runner.try_unadapted,
            ORACLE: runner.try_oracle,
        }
        control = commonest_edit(run, judge)
        if control is not None:
            ways[CONTROL] = partial(runner.try_edit, edit=control)
        return {
            name: [(e.group_id, float(way(e).is_right(outputs_of(e)))) for e in examples]
            for name, way in ways.items()
        }


def commonest_edit(run: Run, judge: Judge) -> SelfEdit | None:
    """Return the edit with the most frequent value of each part (all tools together, strategy,
    learning rate, epochs) among the edits of solved train tasks; of equally frequent values the
    first.

    None if none was solved.
    """
    train = {
        row.conversation_id for row, question in run.joined_rows() if question.split == "train"
    }
    edits: list[Mapping[str, Any]] = [
        verdict.details["edit"]
        for verdict in run.verdict_rows()
        if verdict.judge == judge.name
        and verdict.conversation_id in train
        and verdict.scores.get("accuracy") == 1
        and "edit" in verdict.details
    ]
    if not edits:
        return None
    return SelfEdit(
        frozenset(_most_common(tuple(edit["tools"]) for edit in edits)),
        _most_common(edit["strategy"] for edit in edits),
        _most_common(edit["learning_rate"] for edit in edits),
        _most_common(edit["epochs"] for edit in edits),
    )


def _most_common(values: Iterable[T]) -> T:
    """Return the most frequent value; the first of equals."""
    ((value, _),) = Counter(values).most_common(1)
    return value
