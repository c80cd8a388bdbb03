"""`train seal`: self-edits rewarded by what they teach, in rounds, beside their baselines.

Zweiger et al. 2025 (SEAL): sample edits, keep the good ones, fit, repeat (ReST-EM).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench import catalog
from convbench.commands import rounds as looping
from convbench.commands.adaptation import cache_of, open_runner, settings_of
from convbench.commands.judge import judges_of
from convbench.commands.rounds import RoundsOptions, RoundsResult
from convbench.commands.train import sort_sets
from convbench.errors import RunError, SpecError
from convbench.judge import Judge
from convbench.report.stats import Estimate, estimate
from convbench.schema.recipe import Recipe
from convbench.store import Run
from convbench.store.jsonl import write_whole

FILTERS: Mapping[str, tuple[str, ...]] = {
    "best-of-k": ("data.metric=reward", "weighting.threshold=null"),
    "improves": ("data.metric=gain", "weighting.threshold=1.0e-9"),
}
"""Which edits are kept: each context's best one, or all that improve (equation 2)."""


@dataclass(frozen=True)
class Line:
    """One line of the table: a way to adapt, and accuracy over the test passages."""

    name: str
    estimate: Estimate
    values: tuple[tuple[str, float], ...]
    """(passage, accuracy) of every adaptation."""


@dataclass
class SealResult:
    """What `train seal` did."""

    rounds: RoundsResult
    lines: list[Line] = field(default_factory=list)
    table: Path | None = None


def seal(options: RoundsOptions, *, baselines: bool = True) -> SealResult:
    """Run SEAL's rounds on a run of self-edits and write the table of accuracies.

    The recipe's `args.filter` chooses the edits that are learnt. Resumable at any point, down to
    the adaptation.
    """
    recipe = _recipe(options)
    name = str(recipe.args.get("filter", "best-of-k"))
    if name not in FILTERS:
        known = ", ".join(FILTERS)
        raise SpecError(f"recipe {recipe.name}: args.filter: found {name!r}; expected {known}")
    own = sort_sets(options.specs.sets)[0]
    sets = tuple(pair for pair in FILTERS[name] if pair.partition("=")[0] not in own)
    specs = replace(options.specs, sets=(*sets, *options.specs.sets))
    done = looping.rounds(replace(options, specs=specs))
    result = SealResult(done)
    judge = next(j for j in judges_of(done.run) if j.name == done.judge)
    if judge.spec.kind == "adaptation":
        result.lines = lines(done, judge, baselines)
        result.table = _write(done.run, result.lines)
    return result


def _recipe(options: RoundsOptions) -> Recipe:
    return catalog.load(
        Recipe, "recipes", options.recipe, specs=options.specs.folders,
        sets=sort_sets(options.specs.sets)[0],
    )  # fmt: skip


def lines(done: RoundsResult, judge: Judge, baselines: bool = True) -> list[Line]:
    """Return base, passage only, the untrained policy's edits, then every round's."""
    found = []
    if baselines:
        found += unadapted(done.run, judge)
    if any(v.judge == judge.name for v in done.run.verdicts()):
        found.append(_line(UNTRAINED, accuracies(done.run, judge)))
    for one in done.rounds:
        if one.evaluated is not None:
            found.append(_line(f"round {one.number}", accuracies(one.evaluated, judge)))
    return found


def unadapted(run: Run, judge: Judge, split: str = "test") -> list[Line]:
    """Return the lines of the policy as it is and after training on the passage alone."""
    base, passage = [], []
    with run.lock(), cache_of(run) as kept:
        runner = open_runner(run, settings_of(judge), kept)
        for example in run.examples.values():
            if example.split == split:
                base.append((example.group_id, runner.before(example)))
                passage.append((example.group_id, runner.outcome(example, None).accuracy))
    return [_line("base", base), _line("passage only", passage)]


def accuracies(run: Run, judge: Judge, split: str = "test") -> list[tuple[str, float]]:
    """Return (passage, accuracy) of every judged self-edit of a split."""
    example_of = {c.conversation_id: run.examples[c.example_id] for c in run.conversations()}
    found = []
    for verdict in run.verdicts():
        example = example_of.get(verdict.conversation_id)
        if example is None or example.split != split or verdict.failure is not None:
            continue
        if verdict.judge == judge.name:
            found.append((example.group_id, verdict.scores["accuracy"]))
    return found


def _line(name: str, values: Iterable[tuple[str, float]]) -> Line:
    values = tuple(values)
    found = estimate(values)
    if found is None:
        raise RunError(
            f"{name}: found no adaptation on the test split; expected some test passages"
        )
    return Line(name, found, values)


UNTRAINED = "untrained self-edits"


def differences(table: Iterable[Line], reference: str = UNTRAINED) -> list[Line]:
    """Return each other line less the reference, passage by passage."""
    means = {line.name: _by_passage(line) for line in table}
    below = means.pop(reference, {})
    found = []
    for name, values in means.items():
        pairs = [(group, value - below[group]) for group, value in values.items() if group in below]
        if pairs:
            found.append(_line(f"{name} less {reference}", pairs))
    return found


def _by_passage(line: Line) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for group, value in line.values:
        groups.setdefault(group, []).append(value)
    return {group: fmean(values) for group, values in groups.items()}


def markdown(table: Iterable[Line]) -> str:
    """Return the lines as a table: mean accuracy with its 95% interval, clustered by passage."""
    rows = ["| adaptation | accuracy | 95% interval | adaptations | passages |",
            "|---|---:|---:|---:|---:|"]  # fmt: skip
    for line in table:
        found = line.estimate
        low, high = found.interval or (found.mean, found.mean)
        rows.append(
            f"| {line.name} | {found.mean:.3f} | {low:.3f} to {high:.3f} | {found.n} | "
            f"{found.groups} |"
        )
    return "\n".join(rows) + "\n"


def published() -> str:
    """Return the paper's table as markdown (Zweiger et al. 2025; Qwen2.5-7B on SQuAD, 200
    passages): to stand beside ours, not to be compared number by number."""
    file = resources.files("convbench") / "report" / "paper" / "seal.csv"
    rows = ["| published (Zweiger et al. 2025) | setting | mean |", "|---|---|---:|"]
    for row in csv.DictReader(file.read_text("utf-8").splitlines()):
        rows.append(f"| {row['method']} | {row['setting']} | {float(row['mean']):.3f} |")
    return "\n".join(rows) + "\n"


def _write(run: Run, table: list[Line]) -> Path:
    run.reports.mkdir(exist_ok=True)
    values: dict[str, Any] = {line.name: list(line.values) for line in table}
    write_whole(run.reports / "seal.json", json.dumps(values, indent=1).encode() + b"\n")
    path = run.reports / "seal.md"
    write_whole(path, f"{markdown(table)}\n{markdown(differences(table))}".encode())
    return path
