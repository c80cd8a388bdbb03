"""SWEET on the pocket collaboration: does the critic know a useful question, does the policy gain?

    python -m tests.bench.pocket_sweet FOLDER SEED [RECIPE] [key=value ...]

Builds and judges a run in FOLDER/SEED (kept for the next call) with the settings of the experiment
`pocket-sweet`, trains RECIPE (`sweet`, or its baselines `rft` and `mt-dpo`), evaluates it on the
test questions, prints one line of JSON.

AUC: the critic's advantage of asking for the property that is wanted, over asking for another, at
the first turn of test questions, which no stage saw. `auc` compares questions across tasks,
`within` only the six that follow the same history; intervals by bootstrap over tasks.
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
from convbench.judges.command import judge_run
from convbench.learn.job import Job
from convbench.learn.log import LoggedConversation
from convbench.learn.sweet.pairs import SweetArgs
from convbench.learn.train import train_recipe
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.specs import as_sets
from convbench.options.train import TrainOptions
from convbench.pocket.world import PROPERTIES
from convbench.rollout.build import build_or_resume
from convbench.schema.experiment import ExperimentSpec
from convbench.stats.estimates import Estimate, estimate
from convbench.store import Run

QUIET = CallOptions(quiet=True)
DRAWS = 2000
"""Bootstrap draws."""


def main() -> None:
    """Run one seed."""
    folder, seed, *rest = sys.argv[1:]
    recipe = rest.pop(0) if rest and "=" not in rest[0] else "sweet"
    path = Path(folder) / seed
    spec = catalog.load_spec(ExperimentSpec, "experiments", "pocket-sweet")
    begun = time.process_time()
    build_or_resume(BuildOptions(run=path, calls=QUIET) if path.exists() else BuildOptions(
        task=spec.tasks[0], tasks=spec.count, model=spec.model, run=path, calls=QUIET,
        shape=RunSettings(samples=spec.samples, temperatures=spec.temperatures, seed=int(seed)),
    ))  # fmt: skip
    judge_run(JudgeOptions(spec.judges, path, calls=QUIET))
    sets = SpecOptions(sets=(*as_sets(spec.sets_of(recipe)), *rest))
    done = train_recipe(
        TrainOptions(recipe, run=path, specs=sets, calls=QUIET, in_process=True)
    ).path
    assert done is not None
    print(done, file=sys.stderr)
    found: dict[str, Any] = {"seed": seed, "recipe": recipe, "sets": rest, "checkpoint": str(done)}
    if recipe == "sweet":
        found |= {"held_out": held_out(done), **auc(path, done)}
        print(json.dumps(found), file=sys.stderr)
    evaluate_policy(EvalOptions(policy=str(done), run=path, calls=QUIET))
    child = max((path / "evals").iterdir(), key=lambda p: p.stat().st_mtime)
    found |= gain(scored(path), scored(child))
    print(json.dumps({**found, "cpu_s": round(time.process_time() - begun)}))


def held_out(folder: Path) -> Any:
    """What the critic's training found on held-out tasks."""
    return json.loads((folder / "critic" / "training.json").read_text())["held_out"]


Scores = dict[tuple[str, int], tuple[float, float]]
"""By (question, sample): whether it was solved, and whether the first turn asked usefully."""


def scored(path: Path) -> Scores:
    """Return success and useful first questions on the test questions of a run."""
    run = Run.open(path)
    verdicts = {v.conversation_id: v.scores.get("accuracy") for v in run.verdicts()}
    found: Scores = {}
    for talk in run.conversations():
        example = run.examples[talk.example_id]
        if example.split == "test" and talk.failure is None:
            useful = f"Which {example.inputs['property']}?" in str(talk.turns[1].content)
            solved = verdicts[talk.conversation_id] == 10
            found[talk.example_id, talk.sample] = float(solved), float(useful)
    return found


def gain(base: Scores, now: Scores) -> dict[str, Any]:
    """Return both policies' means, and the difference in success, paired by conversation."""
    shared = base.keys() & now.keys()
    paired = [(question, now[question, i][0] - base[question, i][0]) for question, i in shared]
    more = estimate([group for group, _ in paired], [value for _, value in paired])
    assert more is not None
    return {
        "questions": more.groups,
        "conversations": more.n,
        "base": means(base),
        "trained": means(now),
        "gain": round(more.mean, 3),
        "interval": interval(more),
    }


def means(scores: Scores) -> dict[str, float]:
    """Return the shares of solved conversations and of useful first questions."""
    solved, asked = zip(*scores.values(), strict=True)
    return {"success": round(fmean(solved), 3), "asks": round(fmean(asked), 3)}


def interval(found: Estimate) -> list[float] | None:
    """Return the 95% interval, clustered by question."""
    return [round(end, 3) for end in found.interval] if found.interval else None


def auc(path: Path, folder: Path, split: str = "test") -> dict[str, Any]:
    """Return shares of (useful, useless) question pairs that the critic orders rightly."""
    import numpy as np

    useful, useless = advantages(path, folder, split)
    gaps = useful[:, None, None] - useless[None]  # (task of the useful, task of the useless, 5)
    right = ((gaps > 0) + 0.5 * (gaps == 0)).mean(-1)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(right), size=(DRAWS, len(right)))
    pooled = [right[np.ix_(some, some)].mean() for some in drawn]
    within = [right.diagonal()[some].mean() for some in drawn]

    def with_ends(value: float, draws: list[float]) -> list[float]:
        return [round(float(v), 3) for v in (value, *np.quantile(draws, (0.025, 0.975)))]

    return {
        "tasks": len(right),
        "auc": with_ends(right.mean(), pooled),
        "within": with_ends(right.diagonal().mean(), within),
    }


def advantages(path: Path, folder: Path, split: str) -> tuple[Any, Any]:
    """Return A of the useful question of each task, shape (tasks,), and of the five others."""
    import numpy as np

    from convbench.learn.sweet.ranking import candidate_advantages

    run = Run.open(path)
    job = Job.from_file(folder / "recipe.yaml")
    by_id, rows = {}, []
    for talk in run.conversations():
        example = run.examples[talk.example_id]
        if example.split == split and talk.sample == 0 and talk.failure is None:
            by_id[talk.conversation_id] = LoggedConversation.from_conversation(talk, example, 0.0)
            wanted = str(example.inputs["property"])
            for prop in (wanted, *(p for p in PROPERTIES if p != wanted)):
                rows.append({"conversation_id": talk.conversation_id, "turn": 1, "cut": False,
                             "text": f"Which {prop}?"})  # fmt: skip
    settings = SweetArgs.from_args(job.recipe.args, "sweet")
    values = candidate_advantages(job, folder / "critic", by_id, rows, settings)
    table = np.array(values).reshape(len(by_id), len(PROPERTIES))
    return table[:, 0], table[:, 1:]


if __name__ == "__main__":
    main()
