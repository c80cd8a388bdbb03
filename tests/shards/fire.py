"""Shards whose processes are killed while they are worked on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.engine.journal import Journal
from convbench.store import Run, shards
from convbench.store.process import has_ended
from convbench.store.shard_attempts import WORKING, ShardWorker
from tests.helpers.cli import Done, get, post, start

FAULTS = {"500": 0.08, "429": 0.06, "reset": 0.06}
"""20 % of the calls, of kinds that end well: each request is hit twice at most."""


@dataclass
class Ended:
    """What shards under fire left."""

    done: Done
    kills: int
    stats: dict[str, Any]
    """The provider's counts."""

    @property
    def repaid(self) -> int:
        """Usable replies beyond the first of each request."""
        return int(self.stats["repeats"])

    @property
    def billed(self) -> int:
        """Tokens that the provider charged."""
        return int(self.stats["billed_prompt"] + self.stats["billed_reply"])


def said(run: Path) -> dict[str, Any]:
    """Return key → all that was said, read as every command reads a run; no key twice."""
    talks: dict[str, Any] = {}
    for one in Run.open(run).conversations():
        assert one.failure is None, one.failure
        assert one.key not in talks
        talks[one.key] = (one.conversation_id != "", one.systems, one.turns, one.stop)
    return talks


def working(run: Path) -> list[tuple[int, Path]]:
    """Return (process, folder) of the processes that work on shards now."""
    pairs = []
    for folder in (run / shards.FOLDER).glob("?????.*"):
        with suppress(OSError, ValueError):
            process = ShardWorker.model_validate_json((folder / WORKING).read_bytes()).process
            if not has_ended(process):
                pairs.append((process.pid, folder))
    return sorted(pairs)


def under_fire(
    folder: Path,
    url: str,
    command: list[str],
    run: str,
    *,
    kills: int,
    least: int,
    longest: float = 240.0,
    extra: dict[str, str] | None = None,
) -> Ended:
    """Run a command whose processes of shards are killed at moments spread over `least` calls."""
    process = start(folder, *command, extra=extra)
    moments = random.Random(len(command))
    ends = time.monotonic() + longest
    marks = [least * (n + 1) // (kills + 2) for n in range(kills)]
    killed = 0
    try:
        while process.poll() is None:
            assert time.monotonic() < ends, f"still at it after {killed} kills"
            if marks and get(url, "/_stats")["calls"] >= marks[0]:
                there = [pid for pid, _ in working(folder / run) if pid != process.pid]
                if there:
                    os.kill(moments.choice(there), signal.SIGKILL)
                    killed += 1
                    marks.pop(0)
            time.sleep(0.02)
        out, err = process.communicate()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.communicate()
    return Ended(Done(process.returncode, out, err), killed, get(url, "/_stats"))


def quiet(url: str, **plan: Any) -> None:
    """Let the provider do as it is told from now on, and count anew."""
    post(url, "/_config", {"latency_s": 0.0, "faults": {}, "max_faults_per_request": 2,
                           "retry_after": 0.05, **plan})  # fmt: skip
    post(url, "/_reset")


def booked(run: Path) -> int:
    """Return the tokens that the journals of a run and of its shards hold."""
    return sum(Journal(file).total_cost()[0] for file in Run.open(run).record_files("calls.jsonl"))


def doubled(run: Path) -> dict[str, int]:
    """Return the keys of which the shards that count hold several records."""
    times = Counter(
        json.loads(line)["key"]
        for file in Run.open(run).record_files("conversations.jsonl") if file.exists()
        for line in file.read_bytes().splitlines()
    )  # fmt: skip
    return {key: many for key, many in times.items() if many > 1}
