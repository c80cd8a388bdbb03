"""A published dataset as a benchmark of the Hub, and a checkpoint's results on it.

Source: the Hub's documentation, "Evaluation Results" (huggingface.co/docs/hub/eval-results):
`eval.yaml` in a dataset names its tasks; `.eval_results/*.yaml` in a model repository holds a list
of {dataset: {id, task_id}, value, source, notes}, which the model's page and the dataset's
leaderboard show. The Hub lists a benchmark once its owner asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from convbench.hub.checkpoint_card import EvaluationResults
from convbench.schema import RunManifest

EVAL = "eval.yaml"
RESULTS = Path(".eval_results") / "convbench.yaml"
FRAMEWORK = "convbench"
QUESTIONS = "examples"
"""The config that holds the questions."""


def task_id(measure: str, judge: str | None) -> str:
    """Return the task id of a measure: `accuracy`, or `reward-JUDGE` for any other measure with a
    judge."""
    return "accuracy" if measure == "accuracy" or judge is None else f"reward-{judge}"


def eval_yaml(
    manifest: RunManifest, judges: Sequence[str], rows: Mapping[str, Mapping[str, int]]
) -> str | None:
    """Return the text of a dataset's `eval.yaml`: a task `accuracy` if answers are choices, and a
    task `reward-JUDGE` for each judge.

    The tasks are on the questions of the test split, else of the first split. None without
    questions or tasks.
    """
    splits = rows.get(QUESTIONS, {})
    split = "test" if splits.get("test") else next(iter(splits), None)
    if split is None:
        return None
    graded = manifest.task.answer.kind == "choice"
    names = [*(["accuracy"] if graded else []), *(task_id("reward", name) for name in judges)]
    about = (
        f"{manifest.task.title}. Protocol {manifest.protocol.name}, mode {manifest.mode}, "
        f"{manifest.turns} policy turns; share of right answers, and mean reward by judge."
    )
    content = {
        "name": f"{manifest.task.name} conversations ({manifest.protocol.name})",
        "description": about,
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": name, "config": QUESTIONS, "split": split} for name in names],
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True) if names else None


def results_yaml(results: EvaluationResults, datasets: Sequence[str]) -> str | None:
    """Return a YAML list with an entry for each measure of a checkpoint: dataset, task, value,
    source and notes.

    The dataset is the first of `datasets`. None without datasets or values.
    """
    if not datasets or not results.values:
        return None
    entries: list[dict[str, Any]] = [
        {
            "dataset": {"id": datasets[0], "task_id": task_id(measure, results.judge)},
            "value": round(value, 6),
            "source": {
                "url": f"https://huggingface.co/datasets/{datasets[0]}",
                "name": "conversations and judges' specs",
            },
            "notes": f"{results.conversations} conversations, {results.groups} independent groups, "
            f"split {results.split}, protocol {results.protocol}",
        }
        for measure, value in results.values.items()
    ]
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
