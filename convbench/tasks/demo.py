"""Forty science questions of our own in the schema of ARC, for the demo and for tests."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def rows(*, seed: int) -> list[dict[str, Any]]:
    """Return the 40 rows, each with id, question, choices (`text` and `label` lists) and answerKey.

    They are fixed; `seed` has no effect.
    """
    text = resources.files("convbench.tasks").joinpath("demo.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]
