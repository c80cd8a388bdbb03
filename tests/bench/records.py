"""Records on disk and start-up: help, query, resume."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Row, convbench, cpu_of

COUNT = 100_000


def help_time(folder: Path) -> Iterator[Row]:
    """`convbench --help` over the imports it cannot do without; medians of interleaved pairs."""
    ratios = []
    for _ in range(7):
        ours = cpu_of([sys.executable, "-m", "convbench", "--help"])
        bare = cpu_of([sys.executable, "-c", "import typer, pydantic, rich.console"])
        ratios.append(ours / bare)
    yield Row("--help / bare imports", statistics.median(ratios), "x", 2.0)


def large_run(folder: Path) -> Iterator[Row]:
    """A finished run of 100,000 conversations: count them, and resume it."""
    convbench(["build", "demo", "--model", "scripted:policy", "--run", "large", "--quiet"], folder)
    _inflate(folder / "large")
    started = time.monotonic()
    convbench(["query", "select count(*) from conversations", "--run", "large"], folder)
    yield Row(f"query count(*) of {COUNT:,}", time.monotonic() - started, "s", 3.0)
    started = time.monotonic()
    convbench(["build", "--run", "large", "--quiet"], folder)
    yield Row(f"resume a finished run of {COUNT:,}", time.monotonic() - started, "s", 5.0)


def _inflate(run: Path) -> None:
    """Make a real run large: its questions and conversations again under new keys."""
    examples = [json.loads(line) for line in (run / "examples.jsonl").open()]
    said = [json.loads(line) for line in (run / "conversations.jsonl").open()]
    per_example = len(said) // len(examples)
    copies = COUNT // per_example // len(examples) + 1
    left = COUNT
    with (
        (run / "examples.jsonl").open("w") as questions,
        (run / "conversations.jsonl").open("w") as conversations,
    ):
        for copy in range(copies):
            for example in examples:
                name = f"{example['example_id']}-{copy}"
                own = {**example, "example_id": name, "group_id": name}
                questions.write(json.dumps(own) + "\n")
            for record in said:
                name = f"{record['example_id']}-{copy}"
                key = f"{name}#{record['sample']}"
                own = {**record, "example_id": name, "key": key,
                       "conversation_id": f"{copy:08x}{record['conversation_id'][8:]}"}  # fmt: skip
                conversations.write(json.dumps(own) + "\n")
                left -= 1
