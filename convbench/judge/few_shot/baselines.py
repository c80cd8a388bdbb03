"""What stands beside self-edits: in-context learning, and the best known settings."""

from __future__ import annotations

from convbench.judge.adaptation.accuracies import NOTHING, Values
from convbench.judge.few_shot.runner import cache_of, open_runner, outputs_of, settings_of
from convbench.judge.resolve import Judge
from convbench.store import Run

ORACLE = "best known settings (oracle)"


def baselines(run: Run, judge: Judge) -> dict[str, Values]:
    """Return (task, 1 or 0) of the policy as it is and after the best known edit, on the run's test
    tasks, under the run's lock. What is finished is not done again."""
    asked = [example for example in run.examples.values() if example.split == "test"]
    with run.lock(), cache_of(run) as kept:
        runner = open_runner(run, settings_of(judge), kept)
        ways = {NOTHING: runner.plain, ORACLE: runner.oracle}
        return {
            name: [(e.group_id, float(way(e).right(outputs_of(e)))) for e in asked]
            for name, way in ways.items()
        }
