"""A crew of workers on a run, some of which are killed and one of which sleeps too long."""

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

from convbench.store import Run, shards
from convbench.store.claims import Entry, _started, chain
from tests.rollout.cli import Done, get, post, start

FAULTS = {"500": 0.08, "429": 0.06, "reset": 0.06}
"""20 % of the calls, of kinds that end well: each request is hit twice at most."""


@dataclass
class Ended:
    """What a crew under fire left."""

    done: Done
    kills: int
    slept: int
    """Workers that were stopped beyond their lease and woken."""
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
    found: dict[str, Any] = {}
    for one in Run.open(run).conversations():
        assert one.failure is None, one.failure
        assert one.key not in found
        found[one.key] = (one.conversation_id != "", one.systems, one.turns, one.stop)
    return found


def workers(run: Path) -> list[tuple[int, str]]:
    """Return (process, name) of the workers that hold a shard now."""
    found = []
    newest = shards.newest(chain(run), shards.MOST)
    for index, epoch in newest.items():
        with suppress(OSError, ValueError):
            text = (chain(run) / f"{index:05}.{epoch}").read_bytes()
            entry = Entry.model_validate_json(text)
            if entry.kind == "held" and _started(entry.process.pid) == entry.process.started:
                found.append((entry.process.pid, f"{index:05}.{epoch}"))
    return sorted(found)


def under_fire(
    folder: Path,
    url: str,
    command: list[str],
    run: str,
    *,
    kills: int,
    least: int,
    sleep_s: float = 0.0,
    longest: float = 240.0,
) -> Ended:
    """Run a command whose workers are killed at moments spread over `least` calls; one of them is
    stopped until its shard was taken over, `sleep_s` at most, and woken."""
    process = start(folder, *command)
    moments = random.Random(len(command))
    told: list[str] = []
    path = folder / run
    ends = time.monotonic() + longest
    marks = [least * (n + 1) // (kills + 2) for n in range(kills + 1)]
    asleep: tuple[int, str, float] | None = None
    killed = slept = 0
    try:
        while process.poll() is None:
            assert time.monotonic() < ends, f"still at it; {told}"
            if asleep is not None:
                taken = shards.part(path, *after(asleep[1])).exists()
                if taken or time.monotonic() > asleep[2]:
                    os.kill(asleep[0], signal.SIGCONT)
                    slept, asleep = slept + taken, None
            if marks and get(url, "/_stats")["calls"] >= marks[0]:
                there = [one for one in workers(path) if asleep is None or one[0] != asleep[0]]
                if len(there) > (asleep is None):  # one is left awake, or started anew
                    pid, name = moments.choice(there)
                    if sleep_s:
                        os.kill(pid, signal.SIGSTOP)
                        asleep, sleep_s = (pid, name, time.monotonic() + sleep_s), 0.0
                    else:
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
                    marks.pop(0)
            time.sleep(0.02)
        out, err = process.communicate()
    finally:
        if asleep is not None:
            with suppress(ProcessLookupError):
                os.kill(asleep[0], signal.SIGCONT)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.communicate()
    done = Done(process.returncode, out, err)
    return Ended(done, killed, slept, get(url, "/_stats"))


def after(name: str) -> tuple[int, int]:
    """Return shard and epoch of the entry that follows one."""
    index, epoch = map(int, name.split("."))
    return index, epoch + 1


def quiet(url: str, **plan: Any) -> None:
    """Let the provider do as it is told from now on, and count anew."""
    post(url, "/_config", {"latency_s": 0.0, "faults": {}, "max_faults_per_request": 2,
                           "retry_after": 0.05, **plan})  # fmt: skip
    post(url, "/_reset")


def settled(run: Path) -> dict[str, Any]:
    """Return the state of a run's ledger."""
    folder = run / shards.FOLDER / shards.LEDGER
    found: dict[str, Any] = json.loads(max(folder.iterdir()).read_bytes())
    return found


def doubled(run: Path) -> dict[str, int]:
    """Return the keys of which a shard that counts holds several records of success."""
    found = Counter(
        json.loads(line)["key"]
        for file in Run.open(run).files("conversations.jsonl") if file.exists()
        for line in file.read_bytes().splitlines()
    )  # fmt: skip
    return {key: many for key, many in found.items() if many > 1}
