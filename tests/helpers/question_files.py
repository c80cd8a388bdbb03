"""Tasks whose questions lie in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convbench.schema import TaskSpec

TASK = {"name": "x", "title": "x", "answer": {"kind": "text"},
        "rows": {"key": "k", "question": "question"}}  # fmt: skip


def task(file: Path, count: int | str = 3, **rows: Any) -> TaskSpec:
    return TaskSpec.model_validate(
        {**TASK, "source": {"file": str(file)}, "sample": {"count": count},
         "rows": {**TASK["rows"], **rows}}  # type: ignore[dict-item]
    )  # fmt: skip
