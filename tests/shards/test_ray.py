"""Shards as tasks of a real Ray cluster here: a head without cores and two nodes."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from convbench.store.shard_attempts import shard_states
from tests.helpers.cli import convbench, get, start
from tests.support.serve import spawn

from .fire import FAULTS, booked, doubled, quiet, said, working

pytest.importorskip("ray")
from .ray_cluster import cluster

AT_ONCE = 4
CAP = 10_000_000


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_and_tasks_loses_nothing(tmp_path: Path) -> None:
    """Processes are killed one by one, then a node is removed with what works there."""
    with spawn("provider") as url, cluster() as (address, remove):
        command = ["build", "demo", "--tasks", "16", "--samples", "2", "--model",
                   "openai/scripted", "--api-base", f"{url}/v1", "--concurrency", str(AT_ONCE),
                   "--run"]  # fmt: skip
        quiet(url)
        alone = convbench(tmp_path, *command, "alone")
        assert alone.code == 0, alone.err
        least = get(url, "/_stats")["calls"]
        quiet(url, latency_s=0.2, faults=FAULTS)
        spread = ("--shards", "6", "--on", f"ray:{address}", "--workers", "4",
                  "--budget-tokens", str(CAP))  # fmt: skip
        process = start(tmp_path, *command, "run", *spread)
        run, draw = tmp_path / "run", random.Random(3)
        events: list[str] = []

        def fire() -> None:
            for share in (6, 4):
                while process.poll() is None and get(url, "/_stats")["calls"] < least // share:
                    time.sleep(0.05)
                if there := working(run):
                    os.kill(draw.choice(there)[0], signal.SIGKILL)
                    events.append("killed")
            while process.poll() is None and get(url, "/_stats")["calls"] < least // 2:
                time.sleep(0.05)
            if process.poll() is None:
                remove()
                events.append("removed")

        thread = threading.Thread(target=fire)
        thread.start()
        try:
            out, err = process.communicate(timeout=400)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
            thread.join(60)
        assert process.returncode == 0, out + err
        assert events == ["killed", "killed", "removed"], "it ended before it was fired at"
        assert said(run) == said(tmp_path / "alone")
        assert doubled(run) == {}
        stats = get(url, "/_stats")
        assert stats["billed_prompt"] + stats["billed_reply"] <= booked(run) <= CAP
        assert stats["repeats"] <= 4 * AT_ONCE, "only what was in flight is paid again"
        assert shard_states(run).done_count == 6
