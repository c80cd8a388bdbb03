"""Is a decisive turn found? A critic on conversations of the embedded world with one planted.

    python -m tests.bench.pocket_credit FOLDER SEED [key=value ...]
    python -m tests.bench.pocket_credit FOLDER SEED branches=N

Writes a planted run (tests/learn/sweet/planted.py), teaches the embedded policy to talk like it
without looking at rewards, trains SWEET's critic from there, has `convbench credit` credit every
turn, and prints one line of JSON. `auc`: how often the decisive turn of a right test conversation
has more credit than another of its turns (questions and answer), `first` how often it has the most.
With `branches=N` there is no critic: a smaller run is credited by N branches at each turn, and the
conversations are those of its train questions, which branches are taken of.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import yaml

from convbench.learn.credit import credit_turns
from convbench.learn.job import Job
from convbench.learn.launch import load_trainer, locate_trainer
from convbench.models.weights_path import resolve_path
from convbench.store import Run
from convbench.store.notes import turn_advantages
from tests.learn import tiny
from tests.learn.sweet.planted import SETS, critic, left, planted

DRAWS = 2000
"""Bootstrap draws, of questions."""
TALK = {"weighting.threshold": -1.0, "fit.epochs": 3, "fit.learning_rate": 3e-4}
"""Imitation of all conversations alike, whatever their reward."""


def main() -> None:
    """Run one seed."""
    folder, seed, *sets = sys.argv[1:]
    path = Path(folder) / seed
    if sets and sets[0].startswith("branches="):
        measured = by_branches(path, int(seed), int(sets[0].partition("=")[2]))
        print(json.dumps({"seed": int(seed), "sets": sets, **measured}))
        return
    run, decisive = planted(path, 160, 6, int(seed))
    policy = talking(run)
    asked = {"args.critic": {"epochs": 1, "learning_rate": 3e-4}, "model": str(policy)}
    said = {key: yaml.safe_load(value) for key, _, value in (one.partition("=") for one in sets)}
    done = critic(run, **{**asked, **said})
    measured = {}
    for raw in (True, False):
        credit_turns(run, str(done), raw=raw)
        name = f"critic{'-raw' if raw else ''}:{done.name}"
        measured["raw" if raw else "centred"] = found(run, decisive, name)
    print(json.dumps({"seed": int(seed), "sets": said, **measured}))


def by_branches(folder: Path, seed: int, per_turn: int) -> dict[str, Any]:
    """Return the measures of credit by branches."""
    run, decisive = planted(folder, 60, 2, seed)
    left(run, per_turn, seed)
    credit_turns(run, "branches")
    return found(run, decisive, "branches:planted", "train")


def talking(run: Run) -> Path:
    """Return the embedded policy after imitating all the conversations."""
    keep = {key: value for key, value in SETS.items() if not key.startswith("args.")}
    file = tiny.resolved(
        run.checkpoints_folder / "talking",
        "rft",
        run,
        Path(resolve_path("pocket")),
        **{**keep, **TALK},
    )
    job, module = Job.from_file(file), load_trainer(locate_trainer("star_gate"))
    module.fit(job, module.data(job))
    return file.parent


def found(run: Run, decisive: dict[str, int], source: str, split: str = "test") -> dict[str, Any]:
    """Return the measures on a split's questions, intervals by bootstrap over these."""
    credited = turn_advantages(run, source)
    by_question: dict[str, list[tuple[float, float]]] = {}
    for talk in run.conversations():
        turn = decisive.get(talk.conversation_id)
        if turn is None or run.examples[talk.example_id].split != split:
            continue
        values = dict(credited[talk.conversation_id])
        own = values.pop(turn)
        right = sum((own > other) + 0.5 * (own == other) for other in values.values())
        row = (right / len(values), float(own > max(values.values())))
        by_question.setdefault(talk.example_id, []).append(row)
    groups = list(by_question.values())
    rng = random.Random(0)
    draws = [_means(rng.choices(groups, k=len(groups))) for _ in range(DRAWS)]
    whole = _means(groups)
    out: dict[str, Any] = {"questions": len(groups), "conversations": sum(map(len, groups))}
    for place, name in enumerate(("auc", "first")):
        ends = sorted(draw[place] for draw in draws)
        low, high = ends[round(0.025 * DRAWS)], ends[round(0.975 * DRAWS) - 1]
        out[name] = [round(value, 3) for value in (whole[place], low, high)]
    return out


def _means(groups: list[list[tuple[float, float]]]) -> tuple[float, float]:
    rows = [row for group in groups for row in group]
    return sum(a for a, _ in rows) / len(rows), sum(b for _, b in rows) / len(rows)


if __name__ == "__main__":
    main()
