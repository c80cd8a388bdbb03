"""Hidden tests in the sandbox: gradings a second."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from convbench.sandbox import agree, boundary, run_calls
from tests.bench.bench import ROOT, Row

TASKS = (
    ROOT.parent / "shared/data/hub/facebook__collaborative_agent_bench/backend_tasks/test.parquet"
)
COUNT = 120


def gradings(folder: Path) -> Iterator[Row]:
    """Full gradings a second on all cores: reference and answer, ten tests each, each in a
    sandbox of its own and nothing kept. ColBench's references where they are here, else ours."""
    tasks = _tasks()
    boundary()

    def grade(task: tuple[str, tuple[str, ...]]) -> bool:
        code, calls = task
        wanted, found = run_calls([code], calls), run_calls([code], calls)
        return all(agree(a, b) for a, b in zip(found, wanted, strict=True))

    began = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        passed = sum(pool.map(grade, tasks))
    rate = len(tasks) / (time.perf_counter() - began)
    assert passed >= 0.9 * len(tasks), f"only {passed} of {len(tasks)} references passed"
    yield Row("full gradings of ten hidden tests", rate, "/s", 15.0, at_least=True)


def _tasks() -> list[tuple[str, tuple[str, ...]]]:
    if not TASKS.exists():
        ours = "def add(a, b):\n    return sorted([a, b]) + [a + b]"
        return [(ours, tuple(f"add({i}, {n})" for i in range(10))) for n in range(COUNT)]
    import duckdb

    rows = duckdb.execute(
        "select ground_truth, test_cases from read_parquet(?) where ground_truth not like "
        "'%import%' limit ?", [str(TASKS), COUNT],
    ).fetchall()  # fmt: skip
    return [(code, tuple(json.loads(tests).values())) for code, tests in rows]
