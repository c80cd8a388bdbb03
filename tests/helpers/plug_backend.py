"""Speakers for ColBench's backend: an agent that asks once and answers, a human who tells.

`COLBENCH_TASKS` names the parquet file from which the agent takes right answers for
questions of even length, as a strong model would write them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

SENTINELS: list[str] = []


def agent(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Ask one question, then answer: rightly for every other question."""
    heard = "\n".join(str(m["content"]) for m in messages)
    if len(messages) < 4:
        return "It is private what I think. OUTPUT: What should happen at the edges?"
    question = example["question"]
    if len(question) % 2:
        name = re.findall(r"def\s+(\w+)", heard)[-1]
        return f"I WANT TO ANSWER:\n```python\ndef {name}(*args, **kwargs):\n    return 'no'\n```"
    return f"OUTPUT: I WANT TO ANSWER:\n```python\n{_right(question)}\n```"


def human(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Tell something harmless; leak the reference to some."""
    if len(example["question"]) % 5 == 0:
        return str(example["reference"])
    return "It should do the usual thing there, nothing special."


def _right(question: str) -> str:
    import duckdb

    rows = duckdb.execute(
        "select ground_truth from read_parquet(?) where trim(problem_description) = ?",
        [os.environ["COLBENCH_TASKS"], question],
    ).fetchall()
    return str(rows[0][0])
