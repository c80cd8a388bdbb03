"""Workers that are killed, put to sleep and refused by their provider: nothing is lost, nothing
stands twice, no limit is passed, and what is paid twice is what was in flight.

The same with more workers, and on a Ray cluster that loses a node: `python -m tests.bench crews`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.store import Run, shards
from convbench.store.claims import listed
from tests.rollout.cli import convbench, get
from tests.support.serve import spawn

from .crew import FAULTS, doubled, quiet, said, settled, under_fire

AT_ONCE = 6


@pytest.mark.slow
def test_a_crew_under_fire_leaves_what_one_process_leaves(tmp_path: Path) -> None:
    def command(url: str, run: str, *more: str) -> list[str]:
        return [
            "build", "demo", "--tasks", "12", "--samples", "2", "--model", "openai/scripted",
            "--api-base", f"{url}/v1", "--concurrency", str(AT_ONCE), "--run", run, *more,
        ]  # fmt: skip

    with spawn("provider") as url:
        quiet(url)
        alone = convbench(tmp_path, *command(url, "alone"))
        assert alone.code == 0, alone.err
        least = get(url, "/_stats")["calls"]
        quiet(url, latency_s=0.15, faults=FAULTS)
        cap = "10000000"
        spread = ("--shards", "8", "--on", "local:2", "--lease", "1", "--budget-tokens", cap)
        found = under_fire(
            tmp_path, url, command(url, "many", *spread), "many", kills=1, least=least, sleep_s=50
        )
        assert found.done.code == 0, found.done.err
        assert "Traceback" not in found.done.err
        run = tmp_path / "many"
        assert (found.kills, found.slept) == (1, 1)
        assert said(run) == said(tmp_path / "alone")
        assert doubled(run) == {}
        assert found.repaid <= 2 * AT_ONCE, "only what was in flight is paid again"
        assert sum(found.stats["faults"].values()) > 0.1 * found.stats["calls"]
        listing = listed(run)
        assert listing.finished
        account = settled(run)
        assert account["open"] == {}
        assert found.billed <= account["spent_tokens"] <= int(cap), "booked is never less"
        shown = json.loads(convbench(tmp_path, "work", "many", "--list", "--json").out)["result"]
        assert (shown["done"], shown["held"], shown["stopped"]) == (8, [], {})
        assert sum(one["done"] for one in shown["workers"]) >= 20
        assert len(list(Run.open(run).files("calls.jsonl"))) == 9
        assert len(list((run / shards.FOLDER / "logs").iterdir())) == 3, "one was started anew"
