"""A budget is shared out to the shards: together they never pass it, and what some leave others
spend in a later pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.store import shards
from convbench.store.shard_attempts import shard_states
from convbench.store.shards import read_plan
from tests.helpers.cli import convbench, get
from tests.support.serve import spawn

from .fire import booked, doubled, quiet, said

COUNT = 5


@pytest.mark.exhaustive
@pytest.mark.slow
def test_shards_spend_a_budget_together_and_never_pass_it(tmp_path: Path) -> None:
    def command(url: str, run: str, *more: str) -> list[str]:
        return ["build", "demo", "--tasks", "20", "--samples", "1", "--model", "openai/scripted",
                "--api-base", f"{url}/v1", "--concurrency", "4", "--run", run, *more]  # fmt: skip

    with spawn("provider") as url:
        quiet(url)
        assert convbench(tmp_path, *command(url, "alone")).code == 0
        need = booked(tmp_path / "alone")
        cap, run = need // 2, tmp_path / "run"
        quiet(url)
        spread = ("--shards", str(COUNT), "--on", "local:2")
        poor = convbench(tmp_path, *command(url, "run", *spread, "--budget-tokens", str(cap)))
        assert poor.code == 1
        assert "shards are not done: budget:" in poor.err
        assert "resume with a larger --budget-tokens" in poor.err
        stats = get(url, "/_stats")
        billed = stats["billed_prompt"] + stats["billed_reply"]
        assert billed <= booked(run) <= cap
        calls = stats["calls"]
        assert cap - booked(run) < COUNT * need / calls, "less is left than a call each would take"
        limits = read_plan(run).limits
        assert set(limits) == set(range(COUNT))
        assert len(said(run)) < 20
        again = convbench(tmp_path, *command(url, "run", "--on", "local:2",
                                             "--budget-tokens", str(2 * need)))  # fmt: skip
        assert again.code == 0, again.err
        assert said(run) == said(tmp_path / "alone")
        assert doubled(run) == {}
        assert booked(run) <= 1.2 * need, "what was paid for is not paid again"


@pytest.mark.slow
def test_one_process_has_one_budget_for_all_shards(tmp_path: Path) -> None:
    command = ["build", "demo", "--tasks", "12", "--samples", "1", "--model", "openai/scripted",
               "--concurrency", "2", "--run", "run", "--shards", "4"]  # fmt: skip
    with spawn("provider") as url:
        quiet(url)
        command += ["--api-base", f"{url}/v1"]
        done = convbench(tmp_path, *command, "--budget-tokens", "3000")
        run = tmp_path / "run"
        assert done.code == 1
        assert "budget: " in done.err
        assert " of 3000 tokens are spent" in done.err
        assert 1500 < booked(run) <= 3000
        states = shard_states(run)
        assert states.left
        assert sum(folder.joinpath("calls.jsonl").exists() for folder in
                   shards.shard_folders(run).values()) < 4, "the first ones alone"  # fmt: skip
        done = convbench(tmp_path, *command, "--budget-tokens", "10000000")
        assert done.code == 0, done.err
        assert len(said(run)) == 12
