"""Coverage of `estimate`'s intervals on the embedded world, where the truth can be sampled.

    python -m tests.bench.offpolicy FOLDER [REPLICATES]

Logs the embedded policy (`local:pocket`) on 60 questions, 20 samples each at temperature 1; trains
policies of growing distance from it on another run; samples each as often on the same questions,
which gives its true value; then draws logs of 60 questions (with replacement) with one sample each
from the large one, estimates, and counts how often the 95% interval holds the truth, over those
that are estimated, and how many are refused. The large log and the truth have errors of their own,
of about a twentieth of a small log's variance each. Before that the same on a world of six answers
whose values are sums, which has neither. A line of JSON a policy.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from convbench.experiments.evaluate import evaluate_policy
from convbench.judges.command import judge_run
from convbench.learn.ratios import log_ratios
from convbench.learn.select import collect_conversations
from convbench.learn.train import train_once
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.train import TrainOptions
from convbench.rollout.build import build_or_resume
from convbench.schema.recipe import Data
from convbench.stats.offpolicy import LoggedReward, doubly_robust, measure_overlap, snips_value
from convbench.store.run import Run
from tests.helpers.bandit import World

QUIET = CallOptions(quiet=True)
QUESTIONS, SAMPLES = 60, 20
POLICIES = {
    "refit, a little": ("refit", ("fit.learning_rate=1e-4",)),
    "swift, a little": ("swift", ("fit.learning_rate=1e-5",)),
    "swift": ("swift", ("fit.learning_rate=5e-5",)),
}
SETS = (
    "launch=none", "data.unit=conversation", "fit.precision=fp32", "fit.epochs=1",
    "fit.gradient_checkpointing=false", "fit.batch_size=16", "fit.accumulation=1", "fit.save=end",
)  # fmt: skip


def logged(path: Path, samples: int, tasks: int, split: str, seed: int) -> Run:
    """A judged run whose questions are all of one split."""
    sets = ("task.sample.split=fraction", f"task.sample.train={float(split == 'train')}")
    shape = RunSettings(seed=seed, max_tokens=96, samples=samples, temperatures=(1.0,))
    build_or_resume(BuildOptions(run=path, calls=QUIET) if path.exists() else BuildOptions(
        "pocket", tasks=tasks, model="local:pocket", run=path, calls=QUIET, shape=shape,
        specs=SpecOptions(sets=sets),
    ))  # fmt: skip
    judge_run(JudgeOptions(("rules",), path, calls=QUIET))
    return Run.open(path)


def main() -> None:
    """Build, train, sample, count."""
    folder, *rest = sys.argv[1:]
    root, replicates = Path(folder), int(rest[0]) if rest else 1000
    for apart in (1.0, 3.5, 7.0, 14.0):
        world = World(2000, apart, 3)
        logs = (world.log(100, 1, seed) for seed in range(replicates))
        print(json.dumps({"world": apart, **covered(logs, world.value())}), flush=True)
    learnt = logged(root / "learnt", 3, 200, "train", 1)
    log = logged(root / "log", SAMPLES, QUESTIONS, "test", 2)
    for name, (recipe, sets) in POLICIES.items():
        begun = time.process_time()
        out = root / name.replace(", ", "-").replace(" ", "-")
        train_once(TrainOptions(recipe, run=(learnt.path,), calls=QUIET, in_process=True,
                                specs=SpecOptions(sets=(*SETS, *sets))), out)  # fmt: skip
        child = evaluate_policy(EvalOptions(str(out), (log.path,), calls=QUIET)).run
        truth = fmean(v.reward for v in child.verdicts() if v.reward is not None)
        selection = collect_conversations(log, Data(flagged="keep"), "test")
        weighed = [
            LoggedReward(one.logged.task, one.log_ratio, one.logged.reward)
            for one in log_ratios(selection, str(out))
        ]
        print(json.dumps({
            "policy": name, "truth": round(truth, 4),
            "log": round(fmean(d.reward for d in weighed), 4),
            **covered(small(weighed, replicates), truth),
            "cpu_s": round(time.process_time() - begun),
        }), flush=True)  # fmt: skip


def small(pool: list[LoggedReward], replicates: int) -> Iterator[list[LoggedReward]]:
    """Yield small logs: a sample of each of so many questions, drawn with replacement."""
    by_question: dict[str, list[LoggedReward]] = {}
    for draw in pool:
        by_question.setdefault(draw.group, []).append(draw)
    names, stream = sorted(by_question), random.Random(0)
    for _ in range(replicates):
        drawn = [stream.choice(by_question[stream.choice(names)]) for _ in range(QUESTIONS)]
        yield [replace(one, group=str(place)) for place, one in enumerate(drawn)]


def covered(logs: Iterable[list[LoggedReward]], truth: float) -> dict[str, float]:
    """Return coverage and mean width of both estimators where they are estimated, and what it
    would be were nothing refused."""
    rules = {"snips": snips_value, "robust": doubly_robust}
    held, widths = Counter[str](), dict[str, list[float]](snips=[], robust=[])
    n, known, effective = 0, 0, []
    for log in logs:
        seen = measure_overlap(log)
        effective.append(seen.effective_groups)
        fine = not seen.unknown_reasons()
        n, known = n + 1, known + fine
        for name, rule in rules.items():
            low, high = rule(log).interval or (0.0, 0.0)
            held[name] += fine and low <= truth <= high
            held[f"{name} of all"] += low <= truth <= high
            if fine:
                widths[name].append(high - low)
    return {
        "logs": n,
        "known": round(known / n, 3),
        "effective": round(fmean(effective), 1),
        **{f"coverage {name}": round(held[name] / known, 3) for name in rules if known},
        "coverage snips if never refused": round(held["snips of all"] / n, 3),
        **{f"width {name}": round(fmean(w), 3) for name, w in widths.items() if w},
    }


if __name__ == "__main__":
    main()
