"""The steps that dry runs of experiments list, a line each: cell and step, policy, judges, counts.

Question sets are copies of our excerpts' rows, numbered, as many as the papers draw.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from convbench.experiments.cells import PlannedStep, plan_steps
from convbench.experiments.estimate import estimate_cells
from convbench.experiments.experiment import load_specs
from convbench.experiments.preflight import PreflightFindings, count_rows, run_preflight
from convbench.experiments.step import step_fingerprint
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, SpecOptions
from tests.helpers.excerpts import EXCERPTS

NAMES = (
    "paper", "paper-as-printed", "sweet-backend", "sweet-frontend", "seal", "seal-prompts",
    "seal-pretraining", "seal-filters", "self-edits", "size-trajectories", "few-shot",
)  # fmt: skip
SETS = {
    "arc": ("allenai__ai2_arc/ARC-Challenge/train", "question", 834),
    "mmlu": ("cais__mmlu/all/test", "question", 500),
    "openbookqa": ("allenai__openbookqa/main/train", "question_stem", 500),
    "sciqa": ("derek-thomas__ScienceQA/default/train", "question", 500),
    "sciq": ("allenai__sciq/default/validation", "question", 500),
    "squad": ("rajpurkar__squad/plain_text/validation", "context", 300),
    "websight": ("HuggingFaceM4__WebSight/v0.2/train", "llm_generated_idea", 1500),
    "colbench-backend": ("facebook__collaborative_agent_bench/backend_tasks/test",
                         "problem_description", 500),
    "cosql": ("cais__mmlu/all/test", "question", 500),
    "mathdial": ("cais__mmlu/all/test", "question", 500),
}  # fmt: skip
"""The excerpt that a task's rows are copies of, the field by which these differ, their number."""
MORE: dict[str, dict[str, Any]] = {
    "sciqa": {"image": None},
    "cosql": dict.fromkeys(("utterance", "hint", "tables", "foreign_keys"), ""),
    "mathdial": {"student_attempt": ""},
}
"""Further columns of a task's rows."""
MADE = ("cosql", "mathdial")
"""Tasks whose questions a function makes of their sets' rows; here the rows are the questions."""
PUZZLES = {"training": 11, "evaluation": 8}
"""ARC-AGI's tasks, as many as SEAL chose."""


def write_questions(folder: Path) -> tuple[str, ...]:
    """Write a set for every task into a folder; return the settings that name them."""
    sets: dict[str, Any] = {}
    for task, (excerpt, field, count) in SETS.items():
        lines = (EXCERPTS / "hub" / f"{excerpt}.jsonl").read_text().splitlines()
        found = [json.loads(line) | MORE.get(task, {}) for line in lines]
        copies = (_numbered(found[n % len(found)], field, n) for n in range(count))
        file = folder / f"{task}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in copies))
        values = {"source.file": str(file), "source.splits": []}
        values |= {"rows.maker": None} if task in MADE else {}
        sets |= {f"per_task.{task}.sets.task.{key}": value for key, value in values.items()}
    for split, count in PUZZLES.items():
        (folder / "arc-agi" / split).mkdir(parents=True)
        for n in range(count):
            puzzle = EXCERPTS / "arc_agi" / "training" / "own_mirror.json"
            shutil.copy(puzzle, folder / "arc-agi" / split / f"{split}{n:02}.json")
    sets["per_task.arc-agi.sets.task.source.args.folder"] = str(folder / "arc-agi")
    return tuple(f"{key}={json.dumps(value)}" for key, value in sets.items())


def _numbered(row: dict[str, Any], field: str, number: int) -> dict[str, Any]:
    return row | {"id": str(number), "group": str(number), field: f"{row[field]} ({number})"}


def planned_steps(name: str, sets: tuple[str, ...], root: Path) -> Iterator[dict[str, str | int]]:
    """Yield every step of an experiment and of those that it adds, in order, as `_step_fields`."""
    options = ExperimentOptions(
        name, root, dry_run=True, calls=CallOptions(quiet=True), specs=SpecOptions(sets=sets)
    )
    parts = {
        (part.step.address, step_fingerprint(part.step, part.spec)): part
        for spec in load_specs(options)
        for part in plan_steps(spec)
    }
    findings = run_preflight(list(parts.values()), root, options)
    counts: dict[Hashable, dict[str, int]] = {}
    for part in parts.values():
        key = _counts_key(part)
        if key not in counts:
            (amount,) = estimate_cells([part], findings, options).values()
            made = {"conversations": amount.conversations, "verdicts": amount.verdicts}
            counts[key] = {name: count for name, count in made.items() if count}
        yield _step_fields(part, findings) | counts[key]


def _counts_key(part: PlannedStep) -> Hashable:
    """Return what decides how much a step makes: a cell's learners are evaluated alike, and each of
    these experiments has learners with rounds alone or none."""
    step = part.step
    trained = step.settings_name if step.kind == "train" else ""
    return step.cell.name, step.kind, step.policy, trained, part.spec.judges


def _step_fields(part: PlannedStep, findings: PreflightFindings) -> dict[str, str | int]:
    """Return a step's address, who speaks and judges in it, and of a training the rows of its log
    in the recipe's unit, turns or conversations."""
    step, inputs = part.step, findings.cells[part.step.cell.name]
    protocol, cast = inputs.manifest.protocol, inputs.manifest.cast
    policy = step.policy or (step.checkpoint if step.kind == "eval" else step.start_checkpoint)
    fields: dict[str, str | int] = {
        "step": step.address,
        "policy": policy or cast[protocol.policy].model,
    }
    if step.kind in ("build", "eval"):
        others = {name: cast[name].model for name in sorted(set(cast) - {protocol.policy})}
        written = ("script", "rule:")
        fields |= {who: model for who, model in others.items() if not model.startswith(written)}
    if step.kind != "build":
        fields["judges"] = ",".join(part.spec.judges[: 1 if step.kind == "train" else None])
    if step.kind == "train":
        recipe = findings.recipes[step.address, part.spec.name]
        fields["rows"] = recipe.data.rows or count_rows(inputs, recipe)
    return fields
