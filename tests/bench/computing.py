"""Tasks whose hidden tests compute, and who solves them: a plugin of `bench cores`.

ColBench's own tests are done in microseconds: a judge of those starts sandboxes and little else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROUNDS = 200_000
"""Of a test's loop: some 9 ms of CPU."""
TESTS = 10


def write_tasks(path: Path, count: int) -> None:
    """Write tasks in the form of ColBench's backend."""
    with path.open("w") as file:
        for number in range(count):
            calls = {f"test{i}": f"mixed_{number}({i})" for i in range(TESTS)}
            row = {"problem_description": f"Task {number}: mix a number with all before it.",
                   "ground_truth": _code(number), "test_cases": json.dumps(calls)}  # fmt: skip
            file.write(json.dumps(row) + "\n")


def agent(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Ask once, then answer rightly."""
    if len(messages) < 4:
        return "It is private what I think. OUTPUT: Is the order the usual one?"
    number = int(re.findall(r"Task (\d+):", str(messages))[-1])
    return f"OUTPUT: I WANT TO ANSWER:\n```python\n{_code(number)}\n```"


def human(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Tell nothing new."""
    return "It should do the usual thing there."


def _code(number: int) -> str:
    return (
        f"def mixed_{number}(start):\n    total = start\n    for at in range({ROUNDS}):\n"
        f"        total = (total * 31 + at + {number}) % 1000003\n    return total\n"
    )
