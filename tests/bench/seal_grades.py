"""How far the grade `recall` is from a judge model's published verdicts, before and after an edit.

python -m tests.bench.seal_grades seal_grades.parquet

Printed are agreement, how much too high the share of right answers comes out, and by how much the
gain is overstated, with intervals by article, on either half of the questions.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from statistics import fmean
from typing import Any

from convbench.judges.adaptation.metrics import recall_grade

Row = dict[str, Any]
SIDES = (("after", "answer", "right"), ("before", "base_answer", "base_right"))


def halves(rows: list[Row], seed: int = 20) -> tuple[list[Row], list[Row]]:
    """Return the rows of one half of the questions and of the other."""
    questions = sorted({row["question"] for row in rows})
    random.Random(seed).shuffle(questions)
    first = set(questions[: len(questions) // 2])
    return [r for r in rows if r["question"] in first], [
        r for r in rows if r["question"] not in first
    ]


def errors(row: Row) -> dict[str, float]:
    """Return grade less verdict before and after the edit, and of the gain."""
    found = {
        side: recall_grade(row[answer], [row["gold"]], row["question"]) - row[right]
        for side, answer, right in SIDES
    }
    return found | {"gain": found["after"] - found["before"]}


def measure(rows: list[Row], draws: int = 2000) -> dict[str, tuple[float, float, float, float]]:
    """Return by side, and of the gain, agreement, mean error and its 95% interval by article."""
    by_title: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        by_title[row["title"]].append(errors(row))
    titles, rng = list(by_title), random.Random(0)
    every = [one for title in titles for one in by_title[title]]
    drawn = [
        [one for title in rng.choices(titles, k=len(titles)) for one in by_title[title]]
        for _ in range(draws)
    ]
    found = {}
    for side in ("after", "before", "gain"):
        means = sorted(fmean(one[side] for one in part) for part in drawn)
        cut = draws // 40
        agreement = fmean(one[side] == 0 for one in every)
        error = fmean(one[side] for one in every)
        found[side] = (agreement, error, means[cut], means[-cut - 1])
    return found


if __name__ == "__main__":
    import pyarrow.parquet as pq

    everything = pq.read_table(sys.argv[1]).to_pylist()
    for name, part in zip(("tuned", "other half"), halves(everything), strict=True):
        for side, (agreement, error, low, high) in measure(part).items():
            said = f"{name:10} {side:6} agrees {agreement:.3f} error {error:+.3f}"
            print(f"{said} [{low:+.3f}, {high:+.3f}]")
