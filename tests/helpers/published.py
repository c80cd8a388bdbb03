"""Publish, pull and read a set, for the process of the Hub's client."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from convbench.hub import repo as hub_repo
from convbench.hub.dataset import publish_dataset
from convbench.hub.pull import pull_dataset
from convbench.store import Run

RECORDS = ("examples.jsonl", "conversations.jsonl", "verdicts.jsonl")


def push(path: Path, repo: str, **options: Any) -> dict[str, Any]:
    """`publish`, for the client's process; what the upload did."""
    hub_repo.FIRST_PAUSE = 0.01
    done = publish_dataset(Run.open(path), repo, **options)
    return dataclasses.asdict(done.uploaded) if done.uploaded else {}


def fetch(repo: str, target: Path, **options: Any) -> str:
    """`pull`, for the client's process; where the run lies."""
    return str(pull_dataset(repo, target, **options).run.path)


def load(repo: str, *args: Any, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """`datasets.load_dataset`, as a reader of the set uses it."""
    import datasets

    found = datasets.load_dataset(repo, *args, **options)
    return {split: list(rows) for split, rows in found.items()}
