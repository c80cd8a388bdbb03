"""SEAL on the embedded world's new facts: the figures of docs/results.md.

python -m tests.bench.pocket_seal FOLDER [--seeds 0 1 2] [--tasks 60] [--samples 4]

One folder a seed; what is there is not done again. Prints one table a seed, then all pooled.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from convbench.commands import continual
from convbench.commands.build import BuildOptions, build
from convbench.commands.calls import CallOptions
from convbench.commands.judge import judges_of
from convbench.commands.manifest import Shape
from convbench.commands.rounds import RoundsOptions
from convbench.commands.seal import Line, SealResult, markdown, seal
from convbench.commands.specs import SpecOptions
from convbench.report.stats import estimate

SETS = (
    "fit.epochs=4", "fit.batch_size=4", "fit.accumulation=1", "fit.learning_rate=1.0e-3",
    "fit.gradient_checkpointing=false", "fit.precision=fp32", "fit.save=end",
    "lora.r=16", "lora.alpha=32",
)  # fmt: skip
"""The outer SFT, sized for the tiny policy; `adaptation-pocket` holds the inner loop."""
JUDGE = "adaptation-pocket"
QUIET = CallOptions(quiet=True)


def rounds(folder: Path, seed: int, tasks: int, samples: int, extra: tuple[str, ...]) -> SealResult:
    """Build the self-edits of one seed and run two rounds."""
    new = not (folder / "run.json").exists()
    shape = Shape(samples=samples, temperatures=(1.0,), max_tokens=64, seed=seed)
    asked = BuildOptions(
        task="pocket-notes", tasks=tasks, model="local:pocket", run=folder, shape=shape,
        calls=QUIET,
    )  # fmt: skip
    build(asked if new else BuildOptions(run=folder, calls=QUIET))
    sets = (*SETS, f"fit.seed={seed}", *extra)
    options = RoundsOptions(
        "seal", 2, folder, JUDGE, in_process=True, specs=SpecOptions(sets=sets), calls=QUIET
    )
    return seal(options)


def several(done: SealResult, sequences: int, length: int) -> dict[str, object]:
    """Continued pre-training and continual self-edits, untrained and after the last round."""
    root, last = done.rounds.run, done.rounds.rounds[-1].evaluated
    assert last is not None
    judge = next(one for one in judges_of(root) if one.name == JUDGE)
    ways = (("passage only", root, True), ("untrained", root, False), ("last round", last, False))
    out: dict[str, object] = {}
    for name, run, alone in ways:
        many = continual.pretrained(
            run, judge, edits=1, alone=alone, epochs=15, learning_rate=3e-3, accumulation=1
        )
        found = continual.forgetting(run, judge, sequences=sequences, length=length, alone=alone)
        continual.write(found, run, f"forgetting-{name.replace(' ', '-')}")
        matrix = [[list(row) for row in one.after] for one in found]
        out[name] = {"cpt": many.accuracy, "base": many.before, "matrices": matrix}
    return out


def main() -> None:
    """Run the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    pooled: dict[str, list[tuple[str, float]]] = {}
    for seed in given.seeds:
        done = rounds(
            given.folder / f"seed{seed}", seed, given.tasks, given.samples, tuple(given.set)
        )
        print(f"seed {seed}\n{markdown(done.lines)}", flush=True)
        for line in done.lines:
            pooled.setdefault(line.name, []).extend(line.values)
        more = several(done, sequences=3, length=6)
        (given.folder / f"seed{seed}" / "several.json").write_text(json.dumps(more))
        for name, values in more.items():
            print(f"  {name}: cpt {values['cpt']:.3f} (base {values['base']:.3f})", flush=True)  # type: ignore[index]
    lines = [Line(n, found, tuple(v)) for n, v in pooled.items() if (found := estimate(v))]
    print(f"pooled\n{markdown(lines)}", flush=True)


if __name__ == "__main__":
    main()
