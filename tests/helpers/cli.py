"""Run `convbench` as a user does: its own process, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.commands import run_command
from tests.support.next_lines import check_next, next_words

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "convbench"]
LONG_S = 200.0
"""A process that takes longer has hung."""


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a user's mistake gets; fails where there is more or less."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert self.code not in (0, None), self.out + self.err
        assert "Traceback" not in self.err, self.err
        assert len([line for line in lines if line.startswith("error:")]) == 1, self.err
        return next(line for line in lines if line.startswith("error:"))


def environment() -> dict[str, str]:
    """No key, no user file, no network library that warms up: only what is here."""
    kept = {k: v for k, v in os.environ.items()
            if k == "CONVBENCH_CACHE" or not k.startswith(("CONVBENCH", "OPENAI"))}  # fmt: skip
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


def start(
    cwd: Path, *arguments: str, extra: dict[str, str] | None = None, **popen: Any
) -> subprocess.Popen[str]:
    """Start a command and leave it running; `extra` goes into its environment."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment() | (extra or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,
    )


def finish(process: subprocess.Popen[str], longest: float | None = None) -> Done:
    """Wait for a command to end, LONG_S where nobody says."""
    try:
        out, err = process.communicate(timeout=longest or LONG_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=LONG_S)
    return Done(process.returncode, out, err)


def convbench(cwd: Path, *arguments: str, **popen: Any) -> Done:
    """Run a command to its end; what it prints to be typed next can be typed. One that is to be
    started otherwise starts from nothing."""
    done = _done(cwd, *arguments, **popen)
    check_next(arguments, next_words(done.out, done.err))
    return done


def _done(cwd: Path, *arguments: str, **popen: Any) -> Done:
    if popen:
        return finish(start(cwd, *arguments, **popen))
    code, out, err = run_command(arguments, cwd, environment(), LONG_S)
    if code is None:
        raise subprocess.TimeoutExpired([*COMMAND, *arguments], LONG_S, out, err)
    return Done(code, out, err)


def get(url: str, path: str) -> Any:
    """Return a control page of the local provider."""
    with urllib.request.urlopen(url + path, timeout=LONG_S) as reply:
        return json.load(reply)


def post(url: str, path: str, value: object = None) -> Any:
    """Change the local provider."""
    request = urllib.request.Request(url + path, json.dumps(value).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=LONG_S) as reply:
        return json.load(reply)


def until(
    true: Callable[[], bool],
    process: subprocess.Popen[str] | None = None,
    longest: float | None = None,
) -> None:
    """Wait for something; fails where the process ends before, or nothing ever comes."""
    ends = time.monotonic() + (longest or LONG_S)
    while not true():
        assert time.monotonic() < ends, "waited in vain"
        if process is not None and process.poll() is not None and not true():
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.005)


def records(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a JSON lines file."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line.strip()]


def said(run: Path) -> dict[str, Any]:
    """Return key → all that was said, of the conversations that succeeded."""
    found: dict[str, Any] = {}
    for record in records(run / "conversations.jsonl"):
        if record["failure"] is None:
            assert record["key"] not in found, f"{record['key']} twice"
            found[record["key"]] = (record["systems"], record["turns"], record["stop"])
    return found
