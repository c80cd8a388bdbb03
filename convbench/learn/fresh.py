"""Draw train questions that no round has used yet, for recipes with new questions each round.

Zweiger et al. 2025 (SEAL), knowledge incorporation: 50 passages a round.
"""

from __future__ import annotations

from collections.abc import Iterable

from convbench.errors import DataError
from convbench.schema import Example
from convbench.store import Run
from convbench.tasks.draw import question_words
from convbench.tasks.load import load_examples


def unseen_examples(root: Run, seen: Iterable[Run], rounds: int = 1) -> list[Example]:
    """Return train questions for so many more rounds, as many for each as the root has, in the
    order of the draw. None shares its group or its text with a question of the root (test questions
    included) or of a run in `seen`. Raises DataError if the task's source has too few."""
    manifest = root.manifest
    used = [example for run in (root, *seen) for example in run.examples.values()]
    groups, words = {e.group_id for e in used}, {question_words(e) for e in used}
    per_round = sum(example.split == "train" for example in root.examples.values())
    sample = manifest.task.sample.model_copy(update={"count": "all"})
    task = manifest.task.model_copy(update={"sample": sample})
    loaded = load_examples(task, manifest.seed, downloaded=manifest.pulled_from is not None)
    examples = [
        example
        for example in loaded.examples
        if example.split == "train"
        and example.group_id not in groups
        and question_words(example) not in words
    ]
    if len(examples) < per_round * rounds:
        raise DataError(
            f"{root.path}: found {len(examples)} more train questions in task "
            f"{manifest.task.name}; "
            f"expected {per_round * rounds}, {per_round} for each later round (fresh: true). "
            "Build fewer "
            "with --tasks N, or let all rounds learn from the same: --set fresh=false"
        )
    return examples[: per_round * rounds]
