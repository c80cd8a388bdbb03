"""SWEET on the pocket collaboration: does the critic know a useful question, does the policy gain?

    python -m tests.bench.pocket_sweet FOLDER SEED [--set key=value ...]

Builds, judges, trains, evaluates; prints one line of JSON. AUC: advantage of asking for the right
property over asking for another, on the test questions, which no stage saw.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

from convbench.commands.build import BuildOptions, build
from convbench.commands.calls import CallOptions
from convbench.commands.evaluate import EvalOptions, evaluate
from convbench.commands.judge import JudgeOptions, judge
from convbench.commands.manifest import Shape
from convbench.commands.specs import SpecOptions
from convbench.commands.train import TrainOptions, train
from convbench.learn.job import Job
from convbench.learn.ranking import candidate_advantages
from convbench.learn.select import Logged
from convbench.learn.sweet import Sweet
from convbench.pocket.words import PROPERTIES
from convbench.store import Run

SETTINGS = (
    "data.metric=accuracy", "args.wording=I need {hidden}.", "fit.save=end", "fit.batch_size=8",
    "fit.accumulation=1", "fit.learning_rate=2e-5", "args.held_out=0.1",
    'args.critic={"epochs": 6, "learning_rate": 3.0e-4}',
)  # fmt: skip
QUIET = CallOptions(quiet=True)
TASKS = 300


def main() -> None:
    """Run one seed."""
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    sets = SETTINGS + tuple(a for a in sys.argv[3:] if a != "--set")
    path = folder / str(seed)
    if not path.exists():
        build(BuildOptions(
            task="pocket-collaboration", tasks=TASKS, model="local:pocket", run=path, calls=QUIET,
            shape=Shape(samples=3, temperatures=(1.0,), seed=seed),
        ))  # fmt: skip
        judge(JudgeOptions(judges=("rules",), run=path, calls=QUIET))
    done = train(TrainOptions(recipe="sweet", run=path, specs=SpecOptions(sets=sets)))
    assert done.path is not None
    found = {"seed": seed, "held_out": held_out(done.path), "auc": auc(path, done.path)}
    evaluate(EvalOptions(policy=str(done.path), run=path, calls=QUIET))
    child = max((path / "evals").iterdir(), key=lambda p: p.stat().st_mtime)
    found |= {"base": success(path), "sweet": success(child), "checkpoint": str(done.path)}
    print(json.dumps(found))


def held_out(folder: Path) -> object:
    """Pair accuracy that the critic's training found."""
    return json.loads((folder / "critic" / "training.json").read_text())["held_out"]


def success(path: Path) -> dict[str, float]:
    """Share of right answers and of useful first questions on test, mean over questions."""
    run = Run.open(path)
    right: dict[str, list[float]] = {}
    asked: dict[str, list[float]] = {}
    verdicts = {v.conversation_id: v.scores.get("accuracy") for v in run.verdicts()}
    for talk in run.conversations():
        example = run.examples[talk.example_id]
        if example.split == "test" and talk.failure is None:
            score = verdicts[talk.conversation_id]
            right.setdefault(talk.example_id, []).append(float(score == 10))
            useful = f"Which {example.inputs['property']}?" in str(talk.turns[1].content)
            asked.setdefault(talk.example_id, []).append(float(useful))
    return {
        "questions": len(right),
        "success": round(fmean(map(fmean, right.values())), 4),
        "asks": round(fmean(map(fmean, asked.values())), 4),
    }


def auc(path: Path, folder: Path) -> float:
    """Share of (useful, useless) question pairs that the critic orders rightly; ties half."""
    run = Run.open(path)
    job = Job.read(folder / "recipe.yaml")
    settings = Sweet.of(job.recipe.args, "sweet")
    by_id, rows = {}, []
    for talk in run.conversations():
        example = run.examples[talk.example_id]
        if example.split == "test" and talk.sample == 0 and talk.failure is None:
            by_id[talk.conversation_id] = Logged(talk, example, 0.0)
            for prop in PROPERTIES:
                rows.append({"conversation_id": talk.conversation_id, "turn": 1, "cut": False,
                             "text": f"Which {prop}?"})  # fmt: skip
    values = candidate_advantages(job, folder / "critic", by_id, rows, settings)
    useful, useless = [], []
    for row, value in zip(rows, values, strict=True):
        prop = by_id[row["conversation_id"]].example.inputs["property"]
        (useful if row["text"] == f"Which {prop}?" else useless).append(value)
    pairs = [(a > b) + 0.5 * (a == b) for a in useful for b in useless]
    return round(fmean(pairs), 4)


if __name__ == "__main__":
    main()
