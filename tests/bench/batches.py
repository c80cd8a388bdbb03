"""Batches in waves: how many, at what price, and whether kills cost or lose anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench import ROOT, Row, write_questions
from tests.helpers.cli import records, said
from tests.support.killer import post
from tests.support.serve import spawn

COUNT = 500
"""Questions; three conversations of three turns each."""
MODELS = {"OpenAI": "openai/gpt-4o-mini", "Anthropic": "anthropic/claude-haiku-4-5"}
KILLS = (
    "before intent", "after intent", "stall uploading", "stall uploaded", "before file",
    "after file", "stall creating", "stall created", "before batch", "after batch",
    "stall looking", "stall results", "before reply 7", "after reply 40", "before ended",
    "after ended", "stall created", "before conversation 3", "after conversation 50",
    "before ended",
)  # fmt: skip
"""20 moments over all states, one after the other on one run."""
OTHERS = {
    "stall uploading": "after intent", "stall uploaded": "before intent",
    "before file": "after intent", "after file": "before intent",
}  # fmt: skip
"""What stands for the moments of an upload where there is none."""
FAULTS = {
    "fail": 0.03, "expire": [2], "look_503": 4, "create_502": [3], "unlisted": 1,
    "lines": ["repeated", "foreign", "unreadable"],
}  # fmt: skip
PRICES = {"OpenAI": (0.15e-6, 0.6e-6), "Anthropic": (1e-6, 5e-6)}
"""List prices of a prompt token and a reply token in dollars."""


def batches(folder: Path) -> Iterator[Row]:
    """500 questions, 3 conversations of 3 turns, 1,500 verdicts, by both APIs."""
    write_questions(folder / "q.jsonl", COUNT)
    for api in MODELS:
        plain = _session(api, folder, f"{api}-plain", [], batch=False)["words"]
        yield from _quiet(api, folder, plain)
        yield from _faulty(api, folder, plain)
        yield from _killed(api, folder, plain)


def _quiet(api: str, folder: Path, words: Any) -> Iterator[Row]:
    found = _session(api, folder, f"{api}-quiet", [])
    yield Row(f"batches, {api}: waves of 3 turns and a judge", len(found["batches"]), "", 4)
    yield Row(f"batches, {api}: of the list price", found["share"] * 100, "%", 50.5)
    yield Row(f"batches, {api}: conversations that differ", _differ(found["words"], words), "", 0)


def _faulty(api: str, folder: Path, words: Any) -> Iterator[Row]:
    """3 % of requests fail, one batch expires, looks and creations fail, results are spoilt."""
    found = _session(api, folder, f"{api}-faulty", [], faults=FAULTS)
    yield Row(f"batches, {api}, faults: of the list price", found["share"] * 100, "%", 50.5)
    yield Row(f"batches, {api}, faults: differ", _differ(found["words"], words), "", 0)
    yield Row(f"batches, {api}, faults: sent in vain", found["twice"], "", 0)


def _killed(api: str, folder: Path, words: Any) -> Iterator[Row]:
    kills = [OTHERS.get(kill, kill) if api == "Anthropic" else kill for kill in KILLS]
    found = _session(api, folder, f"{api}-killed", kills)
    yield Row(f"batches, {api}: kills", found["kills"], "", len(kills), at_least=True)
    yield Row(f"batches, {api}, {len(kills)} kills: sent twice", found["twice"], "", 0)
    yield Row(f"batches, {api}, {len(kills)} kills: lost or differ",
              _differ(found["words"], words), "", 0)  # fmt: skip
    yield Row(f"batches, {api}, {len(kills)} kills: of the list price", found["share"] * 100, "%",
              50.5)  # fmt: skip


def _differ(found: dict[str, Any], wanted: dict[str, Any]) -> int:
    """Return conversations that are not there, or other ones, and verdicts that are missing."""
    keys = found.keys() | wanted.keys()
    return sum(found.get(key) != wanted.get(key) for key in keys)


def _session(
    api: str,
    folder: Path,
    name: str,
    kills: list[str],
    *,
    batch: bool = True,
    faults: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Build and judge with these kills, in the build; return what provider and run hold."""
    model = MODELS[api]
    with spawn("batches") as url:
        post(url, "/_batch_plan", faults or {})
        base = ["--api-base", url if api == "Anthropic" else f"{url}/v1", "--quiet"]
        more = [*base, *(["--batch"] if batch else [])]
        ended = _run(url, folder, kills, [
            "build", "arc", "--set", "task.source.file=q.jsonl", "--tasks", str(COUNT),
            "--model", model, "--run", name, *more,
        ])  # fmt: skip
        built = post(url, "/_batch_state", None)
        ended += _run(url, folder, [], ["judge", "--judge", model, "--run", name, *more])
        found = post(url, "/_batch_state", None)
    run, (prompt, reply) = folder / name, PRICES[api]
    spent = sum(turn["cost_usd"] or 0.0 for _, turns, _ in said(run).values() for turn in turns)
    verdicts = [row for row in records(run / "verdicts.jsonl") if row["failure"] is None]
    spent += sum(row["cost_usd"] for row in verdicts)
    calls = records(run / "calls.jsonl")
    return {
        **found,
        "kills": sum(code == -9 for code in ended),
        "share": spent / (found["prompt"] * prompt + found["reply"] * reply),
        "twice": built["repeats"] + len(calls) - len({(one["key"], one["hash"]) for one in calls}),
        "words": _words(run) | _scores(run, verdicts),
    }  # fmt: skip


def _words(run: Path) -> dict[str, Any]:
    """Return what was said, without prices."""
    return {key: [turn["content"] for turn in turns] for key, (_, turns, _) in said(run).items()}


def _scores(run: Path, verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the verdicts' scores by the conversations' keys."""
    keys = {one["conversation_id"]: one["key"] for one in records(run / "conversations.jsonl")}
    return {f"verdict on {keys[one['conversation_id']]}": one["scores"] for one in verdicts}


def _run(url: str, folder: Path, kills: list[str], arguments: list[str]) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killer", url, str(folder), json.dumps(kills),
         json.dumps(arguments)],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "k",
             "ANTHROPIC_API_KEY": "k"},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-800:])
    found: list[int] = json.loads(done.stdout)
    if found[-1] != 0:
        raise RuntimeError(f"{arguments}: ended with {found}: {done.stderr[-800:]}")
    return found
