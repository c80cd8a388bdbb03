"""Every pattern reads a long text in its share of time: a stuck model writes 10,000 newlines."""

from __future__ import annotations

import json
import subprocess
import sys


def test_every_pattern_takes_time_in_proportion_to_the_text() -> None:
    """The one timed test: CPU time in a process of its own, the best of three."""
    command = [sys.executable, "-m", "tests.house.patterns"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
