"""Learners on the embedded world, one line of JSON each: how they fare as their rate grows.

    python -m tests.bench.pocket_rates FOLDER SEED [SPLIT] < LINES

A line of LINES is a recipe and its settings, `swift fit.learning_rate=1e-4`. Builds and judges a
run in FOLDER/SEED with the settings of experiment `pocket` (kept for the next call), trains each,
and evaluates it on SPLIT (`validation` unless said). Accuracy and unparsed share are of all
conversations at all three temperatures; log_ratio is the mean of log(pi / pi_0) a conversation of
the first batch at the last step, positive and negative log pi those of the last line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench import catalog
from convbench.experiments.evaluate import evaluate_policy
from convbench.experiments.training import train_recipe
from convbench.judges.command import judge_run
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.specs import as_sets
from convbench.options.train import TrainOptions
from convbench.rollout.build import build_or_resume
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run
from convbench.store.query import run_query

QUIET = CallOptions(quiet=True)


def main() -> None:
    """Run one seed."""
    folder, seed, *rest = sys.argv[1:]
    split: Any = rest[0] if rest else "validation"
    path = Path(folder) / seed
    spec = catalog.load_spec(ExperimentSpec, "experiments", "pocket")
    build_or_resume(BuildOptions(run=path, calls=QUIET) if path.exists() else BuildOptions(
        task=spec.tasks[0], tasks=spec.count, model=spec.model, run=path, calls=QUIET,
        shape=RunSettings(seed=int(seed), max_tokens=spec.max_tokens),
    ))  # fmt: skip
    judge_run(JudgeOptions(spec.judges, path, calls=QUIET))
    for line in filter(None, map(str.strip, sys.stdin)):
        recipe, *sets = line.split()
        print(json.dumps(one(path, spec, recipe, sets, split)), flush=True)


def one(
    path: Path, spec: ExperimentSpec, recipe: str, sets: list[str], split: Any
) -> dict[str, Any]:
    """Train and evaluate one learner."""
    begun = time.process_time()
    specs = SpecOptions(sets=(f"fit.seed={path.name}", *as_sets(spec.sets_of(recipe)), *sets))
    found: dict[str, Any] = {"seed": path.name, "recipe": recipe, "sets": sets, "split": split}
    policy = str(spec.model)
    if recipe != "base":
        done = train_recipe(
            TrainOptions(recipe, run=path, specs=specs, calls=QUIET, in_process=True)
        )
        assert done.path is not None
        policy = str(done.path)
        log = json.loads((done.path / "training.json").read_text())["log"]
        for name in ("log_ratio", "log_pi_positive", "log_pi_negative"):
            found[name] = next((e[name] for e in reversed(log) if name in e), None)
    child = evaluate_policy(EvalOptions(policy=policy, run=path, split=split, calls=QUIET)).run
    return {**found, **scored(child), "cpu_s": round(time.process_time() - begun)}


SQL = """select avg(correct::int) as accuracy, avg((answer is null)::int) as unparsed, count(*) as n
from conversations where failure is null"""


def scored(child: Run) -> dict[str, Any]:
    """Return accuracy and unparsed share of a child run, and its judge's mean reward."""
    row = run_query(SQL, [child]).rows[0]
    rewards = [v.reward for v in child.verdicts() if v.reward is not None]
    return {
        "accuracy": round(row[0], 4),
        "unparsed": round(row[1], 4),
        "reward": round(fmean(rewards), 4),
        "conversations": row[2],
    }


if __name__ == "__main__":
    main()
