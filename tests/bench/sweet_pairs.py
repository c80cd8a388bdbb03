"""What the pairs of SWEET's critic say of a useful first question, by how they are chosen.

    python -m tests.bench.sweet_pairs FOLDER [SEED ...]

Builds and judges a run in FOLDER/SEED, as `pocket_sweet` does, with the settings of the experiment
`pocket-sweet`; the seeds are 0 and 1, on which those were chosen. Trains nothing. Prints how many
solved conversations of train questions were guesses, then for `select: best` on three conversations
a question, and on all, and for `gap` on all: how often the side that asked for the wanted property
first is the better one of its pair, less how often the worse, by property.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from convbench import catalog
from convbench.judges.command import judge_run
from convbench.learn.log import LoggedConversation
from convbench.learn.select import Selection, select
from convbench.learn.sweet.pairs import SweetArgs, trajectory_pairs
from convbench.options.build import BuildOptions
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, RunSettings
from convbench.pocket.world import PROPERTIES
from convbench.rollout.build import build_or_resume
from convbench.schema.experiment import ExperimentSpec
from convbench.schema.recipe import Data
from convbench.store import Run

FEW = 3
"""Conversations a question that were enough for other learners."""


def judged_run(path: Path, seed: int) -> Run:
    """Return the judged run of a seed, made where it is not there yet."""
    spec = catalog.load_spec(ExperimentSpec, "experiments", "pocket-sweet")
    calls = CallOptions(quiet=True)
    if not path.exists():
        build_or_resume(BuildOptions(
            task=spec.tasks[0], tasks=spec.count, model=spec.model, run=path, calls=calls,
            shape=RunSettings(samples=spec.samples, temperatures=spec.temperatures, seed=seed),
        ))  # fmt: skip
    judge_run(JudgeOptions(spec.judges, path, calls=calls))
    return Run.open(path)


def asks_usefully(item: LoggedConversation) -> bool:
    """Return whether the first turn asks for the property that is wanted."""
    asked = f"Which {item.example.inputs['property']}?"
    return asked in str(item.conversation.turns[1].content)


def net_wins(selection: Selection, mode: str) -> tuple[int, dict[str, int]]:
    """Return how many pairs there are, and the useful question's wins less losses by property."""
    settings = SweetArgs.model_validate({"select": mode, "gap": 0.5, "held_out": 0.0})
    pairs = trajectory_pairs(selection, settings).items
    net: Counter[str] = Counter()
    for better, worse in pairs:
        wanted = str(better.example.inputs["property"])
        net[wanted] += asks_usefully(better) - asks_usefully(worse)
    return len(pairs), {name: net[name] for name in PROPERTIES}


def main() -> None:
    """Print the counts of each seed."""
    folder, *seeds = sys.argv[1:]
    for seed in map(int, seeds or ("0", "1")):
        run = judged_run(Path(folder) / str(seed), seed)
        every = select(run, Data(metric="accuracy"))
        solved = [item for item in every.logged if item.reward == 1]
        lucky = sum(not asks_usefully(item) for item in solved)
        print(f"seed {seed}: {len(solved)} solved train conversations, {lucky} without the useful "
              "question first", flush=True)  # fmt: skip
        few = tuple(item for item in every.logged if item.conversation.sample < FEW)
        chosen = {
            f"best, {FEW} conversations": (replace(every, logged=few), "best"),
            "best, all": (every, "best"),
            "gap, all": (every, "gap"),
        }
        for name, (selection, mode) in chosen.items():
            count, net = net_wins(selection, mode)
            listed = ", ".join(f"{prop} {won:+d}" for prop, won in net.items())
            print(f"seed {seed}, {name} ({count} pairs): {listed}", flush=True)


if __name__ == "__main__":
    main()
