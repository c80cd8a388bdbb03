"""What is said and asked while models answer: local replies, a resumed run, the demo."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import convbench
from tests.golden.outputs import type_command
from tests.golden.run import Record, records
from tests.support.provider import Plan, Provider


def built(run: Path, task: str | None = None, **options: Any) -> Path:
    """Build a run, or resume it, and return its folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few questions one or two are test questions
        convbench.build(task, run=run, quiet=True, **options)
    return run


def local_replies(folder: Path) -> Iterator[Record]:
    """Yield what the embedded policy says in seven conversations of three turns, the first sample
    greedy and the second drawn."""
    run = built(
        folder / "run",
        "pocket",
        model="local:pocket",
        mode="thinking",
        tasks=7,
        samples=2,
        temperatures=[0.0, 1.0],
    )
    for talk in sorted(records(run / "conversations.jsonl"), key=lambda talk: talk["key"]):
        said = [turn["content"] for turn in talk["turns"] if turn["speaker"] == "assistant"]
        yield {"key": talk["key"], "temperature": talk["temperature"], "said": said}


CALLS = 18
"""Three questions, two samples each, three turns."""
CUTS = (
    *((calls, calls // 3) for calls in range(0, CALLS, 3)),
    (8, 0),
    (CALLS - 1, 5),
    (CALLS, 2),
    (4, 6),
)
"""Whole lines that are left of `calls.jsonl` and of `conversations.jsonl`; half of the next line
of each stands behind them."""


def whole_run(folder: Path, provider: Provider) -> Path:
    """Build a run of `CALLS` calls, and bring its lines into the order of their keys."""
    shape = {"tasks": 3, "samples": 2, "temperatures": [0.3, 0.7]}
    run = built(
        folder / "whole", "demo", model="openai/scripted", api_base=provider.api_base, **shape
    )
    for name in ("calls.jsonl", "conversations.jsonl"):
        lines = (run / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (run / name).write_text("".join(sorted(lines, key=_key)), encoding="utf-8")
    return run


def asked_again(folder: Path) -> Iterator[Record]:
    """Yield for each cut the keys of the calls that the resumed run makes, and the number of
    requests that reach the provider."""
    with Provider(Plan(keep_requests=1000)) as provider:
        whole = whole_run(folder, provider)
        said = _said(whole)
        for number, (calls, talks) in enumerate(CUTS):
            run = folder / f"cut-{number}"
            run.mkdir()
            for name in ("run.json", "examples.jsonl"):
                (run / name).write_bytes((whole / name).read_bytes())
            _write_cut(whole, run, "calls.jsonl", calls)
            _write_cut(whole, run, "conversations.jsonl", talks)
            kept = Counter(map(_key, _whole_lines(run)))
            provider.reset()
            built(run, api_base=provider.api_base)
            asked = Counter(map(_key, _whole_lines(run))) - kept
            assert _said(run) == said
            yield {
                "calls left": calls,
                "conversations left": talks,
                "asked": sorted(asked.elements()),
                "requests": len(provider.requests),
            }


def _key(line: str) -> str:
    return str(json.loads(line)["key"])


def _said(run: Path) -> dict[str, list[str]]:
    talks = records(run / "conversations.jsonl")
    return {talk["key"]: [turn["content"] for turn in talk["turns"]] for talk in talks}


def _whole_lines(run: Path) -> list[str]:
    lines = (run / "calls.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


def _write_cut(whole: Path, run: Path, name: str, left: int) -> None:
    lines = (whole / name).read_text(encoding="utf-8").splitlines(keepends=True)
    torn = lines[left][: len(lines[left]) // 2] if left < len(lines) else ""
    (run / name).write_text("".join(lines[:left]) + torn, encoding="utf-8")


def demo_figures(folder: Path) -> Record:
    """Run the demo on 60 questions and return accuracy and mean reward of every policy, with
    the number of conversations."""
    run = folder / "demo"
    type_command("demo", "--run", str(run), "--tasks", "60")
    figures = convbench.query(
        "select policy, avg(correct::int) as accuracy, avg(reward) as reward, count(*) as n "
        "from conversations left join verdicts using (conversation_id) "
        "where split = 'test' group by policy order by policy",
        str(run),
        *(str(child) for child in sorted((run / "evals").iterdir())),
        frame="arrow",
    )
    return {row.pop("policy").rpartition("/")[2]: row for row in figures.to_pylist()}
