"""SEAL on the embedded world's new facts: the figures of docs/lab/2026-11-26-self-edits.md.

python -m tests.bench.pocket_seal FOLDER --choose 3e-4 1e-3 --seeds 5 --samples 3
python -m tests.bench.pocket_seal FOLDER [--seeds 0 1 2] [--filters best-of-k improves]
    [--pretraining]

The first line tries outer rates by one round on a draw of its own, and asks about that draw's
validation passages. The second runs two rounds and asks about test passages. One folder a seed;
what is there is not done again.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from convbench import catalog
from convbench.experiments.evaluate import evaluate_policy
from convbench.experiments.rounds import run_rounds
from convbench.experiments.seal import train_rounds
from convbench.experiments.seal_report import as_markdown
from convbench.judges.adaptation.accuracies import UNTRAINED, Values, edit_accuracies
from convbench.judges.command import judge_run
from convbench.judges.run import judges_of
from convbench.learn.train import FILTERS
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.specs import as_sets
from convbench.options.train import RoundsOptions
from convbench.rollout.build import build_or_resume
from convbench.rollout.manifest import SplitChoice
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run

SPEC = catalog.load_spec(ExperimentSpec, "experiments", "pocket-seal")
SETS = as_sets(SPEC.sets_of("seal"))
"""The outer loop, sized for the tiny policy; `adaptation-pocket` holds the inner one."""
(JUDGE,) = SPEC.judges
QUIET = CallOptions(quiet=True)


def logged(folder: Path, seed: int, tasks: int, samples: int, split: SplitChoice = "all") -> Run:
    """Return a run of untrained self-edits, built and judged now where that is not done."""
    shape = RunSettings(samples=samples, temperatures=SPEC.temperatures, max_tokens=SPEC.max_tokens,
                  seed=seed, split=split)  # fmt: skip
    asked = BuildOptions(
        task=SPEC.tasks[0], tasks=tasks, model=SPEC.model, run=folder, shape=shape, calls=QUIET
    )
    there = (folder / "run.json").exists()
    build_or_resume(BuildOptions(run=folder, calls=QUIET) if there else asked)
    judge_run(JudgeOptions((JUDGE,), folder, calls=QUIET))
    return Run.open(folder)


def copied(run: Run, folder: Path, seed: int, *sets: str) -> RoundsOptions:
    """Return what rounds to run on a copy of a judged run, so that several settings share its
    edits."""
    if not (folder / "run.json").exists():
        shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns("evals", ".lock"))
    specs = SpecOptions(sets=(*SETS, f"fit.seed={seed}", *sets))
    return RoundsOptions("seal", 2, folder, JUDGE, in_process=True, specs=specs, calls=QUIET)


def choose(folder: Path, seed: int, tasks: int, samples: int, rates: list[float]) -> None:
    """Print what one round at each rate gives on the validation passages of a draw."""
    run = logged(folder / "untrained", seed, tasks, samples, "train")
    evaluate_policy(
        EvalOptions("local:pocket", run.path, "untrained", split="validation", calls=QUIET)
    )
    (one,) = judges_of(run)
    untrained = Run.open(run.evals_folder / "untrained")
    taught = {UNTRAINED: edit_accuracies(untrained, one, "validation")}
    for rate in rates:
        options = copied(run, folder / f"rate-{rate:g}", seed, f"fit.learning_rate={rate}")
        (done,) = run_rounds(replace(options, rounds=1, evaluate=False)).rounds
        asked = EvalOptions(str(done.checkpoint), done.run.path, split="validation", calls=QUIET)
        taught[f"rate {rate:g}"] = edit_accuracies(evaluate_policy(asked).run, one, "validation")
        print(f"seed {seed}, validation\n{as_markdown(taught)}", flush=True)


def compare(
    folder: Path, seeds: list[int], tasks: int, samples: int, filters: list[str], more: bool
) -> None:
    """Print a table a seed and filter, and one of all seeds so far."""
    pooled: dict[str, dict[str, Values]] = {name: {} for name in filters}
    for seed in seeds:
        run = logged(folder / f"seed{seed}" / "untrained", seed, tasks, samples)
        for name in filters:
            place = folder / f"seed{seed}" / name
            found = train_rounds(
                copied(run, place, seed, f"filter={name}", f"args.pretraining={+more}")
            )
            done, table = found.result, found.table
            assert table is not None
            print(f"seed {seed}, {name}\n{table.read_text()}", flush=True)
            for way, values in done.taught.items():
                pooled[name].setdefault(way, []).extend(values)
            print(f"pooled, {name}\n{as_markdown(pooled[name])}", flush=True)


def main() -> None:
    """Choose a rate, or run the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SPEC.seeds))
    parser.add_argument("--tasks", type=int, default=SPEC.count)
    parser.add_argument("--samples", type=int, default=SPEC.samples)
    parser.add_argument("--choose", type=float, nargs="+", metavar="RATE")
    parser.add_argument("--filters", nargs="+", choices=FILTERS, default=["best-of-k"])
    parser.add_argument("--pretraining", action="store_true")
    given = parser.parse_args()
    if given.choose:
        for seed in given.seeds:
            place = given.folder / f"choose{seed}"
            choose(place, seed, given.tasks, given.samples, given.choose)
        return
    compare(given.folder, given.seeds, given.tasks, given.samples, given.filters, given.pretraining)


if __name__ == "__main__":
    main()
