"""Several passages at once into a real model: does it learn them, or unlearn to answer?

    python -m tests.bench.real_passages WEIGHTS SQUAD.parquet [passages] [epochs] [tuning:rate ...]

Continued pre-training as the judge `adaptation` has it, on the first passages of SQuAD's rows that
are short, each of another article where there are several. Every passage brings three questions to
be asked closed book and up to three more, of which nothing is asked, that stand with their answers
among the texts of the last way. Prints one line of JSON for every way: the accuracy, and what it is
more than the base's, paired by question, with its interval over passages.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import fmean
from typing import Any

from convbench.judges.adaptation.learner import Learner, Question, rule_grade
from convbench.judges.adaptation.settings import InnerSettings
from convbench.stats.estimates import estimate

LONGEST = 480
"""Characters of a passage."""
ASKED = 3
"""Questions of a passage that are asked; as many more may be trained on."""
WAYS = ("lora:1e-3", "full:1e-4")


def passages(path: str, count: int) -> list[list[dict[str, Any]]]:
    """Return the rows of the first short passages with enough questions, spread over articles."""
    import pyarrow.parquet as parquet

    found: dict[str, list[dict[str, Any]]] = {}
    for row in parquet.read_table(path).to_pylist():
        found.setdefault(row["context"], []).append(row)
    fit = [rows for context, rows in found.items() if len(context) <= LONGEST and len(rows) > ASKED]
    step = max(1, len(fit) // count)
    return fit[::step][:count]


def question(row: dict[str, Any]) -> Question:
    """Return a row as the protocol `closed-book` asks it."""
    said = f"Topic: {row['title']}\n{row['question']}\nAnswer in a few words, not in a sentence."
    golds = tuple(dict.fromkeys(row["answers"]["text"]))
    return Question(({"role": "user", "content": said},), golds, row["question"], row["title"])


def told(row: dict[str, Any]) -> str:
    """Return a question with its answer as a text."""
    return f"{row['title']}\nQuestion: {row['question']}\nAnswer: {row['answers']['text'][0]}"


def main() -> None:
    """Run the ways one after the other."""
    weights, path, *rest = sys.argv[1:]
    count, epochs = (int(one) for one in [*rest[:2], *("6", "5")[len(rest) :]])
    found = passages(path, count)
    learner = Learner.load(weights, "cpu")
    asked = [question(row) for rows in found for row in rows[:ASKED]]
    bare = [f"{rows[0]['title']}\n{rows[0]['context']}" for rows in found]
    pairs = [told(row) for rows in found for row in rows[ASKED : 2 * ASKED]]
    base = InnerSettings(
        max_tokens=16, seeds=1, r=16, alpha=32, epochs=epochs, max_steps=10**9, max_seconds=1e9
    )
    grade = rule_grade(base)
    ways: list[tuple[str, list[str], dict[str, Any]]] = [("nothing (base)", [], {})]
    for tuning, _, rate in (way.partition(":") for way in rest[2:] or WAYS):
        more = {"tuning": tuning, "learning_rate": float(rate)}
        ways.append(("passages", bare, more))
        ways.append(("passages and other questions", [*bare, *pairs], more))
    first: list[float] = []
    for name, texts, more in ways:
        begun = time.process_time()
        inner = base.model_copy(update=more)
        said = learner.teach_texts(texts, asked, inner)
        replies = said.replies[0]
        grades = [
            grade_ if reply.strip() else 0.0
            for grade_, reply in zip(grade(asked, replies), replies, strict=True)
        ]
        first = first or grades
        gains = zip(grades, first, strict=True)
        groups = [f"{at // ASKED}" for at in range(len(gains))]
        gain = estimate(groups, [one - two for one, two in gains])
        ends = gain and gain.interval
        line = {
            "way": name, **more, "texts": len(texts), "steps": said.steps, "reason": said.reason,
            "questions": len(asked), "accuracy": round(fmean(grades), 3),
            "gain": gain and round(gain.mean, 3), "interval": ends and [round(e, 3) for e in ends],
            "words": round(fmean(len(one.split()) for one in replies), 1),
            "empty": sum(not one.strip() for one in replies),
            "replies": replies[:4], "cpu_s": round(time.process_time() - begun),
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
