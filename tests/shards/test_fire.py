"""Processes of shards that are killed, put to sleep and refused by their provider: nothing is lost,
nothing stands twice, no limit is passed, and what is paid twice is what was in flight.

The same with more of them, and on a Ray cluster that loses a node: `python -m tests.bench crews`.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from convbench.store import shards
from convbench.store.shard_attempts import shard_states
from tests.helpers.cli import convbench, finish, get, start, until
from tests.support.processes import gone
from tests.support.serve import spawn

from .fire import FAULTS, booked, doubled, quiet, said, under_fire, working

AT_ONCE = 6
CAP = 10_000_000


def command(url: str, run: str, *more: str) -> list[str]:
    return [
        "build", "demo", "--tasks", "12", "--samples", "2", "--model", "openai/scripted",
        "--api-base", f"{url}/v1", "--concurrency", str(AT_ONCE), "--run", run, *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_shards_under_fire_leave_what_one_process_leaves(tmp_path: Path) -> None:
    with spawn("provider") as url:
        quiet(url)
        alone = convbench(tmp_path, *command(url, "alone"))
        assert alone.code == 0, alone.err
        least = get(url, "/_stats")["calls"]
        quiet(url, latency_s=0.1, faults=FAULTS)
        spread = ("--shards", "4", "--on", "local:2", "--budget-tokens", str(CAP), "--json")
        ended = under_fire(
            tmp_path, url, command(url, "many", *spread), "many", kills=2, least=least
        )
        assert ended.done.code == 0, ended.done.err
        assert "Traceback" not in ended.done.err
        run = tmp_path / "many"
        assert ended.kills == 2
        assert said(run) == said(tmp_path / "alone")
        assert doubled(run) == {}
        assert ended.repaid <= 2 * AT_ONCE, "only what was in flight is paid again"
        assert sum(ended.stats["faults"].values()) > 0.1 * ended.stats["calls"]
        assert shard_states(run).done_count == 4
        assert len(shards.shard_folders(run)) == 4
        assert any(folder.name.endswith(".1") for folder in shards.shard_folders(run).values())
        assert ended.billed <= booked(run) <= CAP, "booked is never less"
        spent = json.loads(ended.done.out)["spent"]
        assert spent["tokens"] == booked(run), "what others spent is the command's"
        shown = json.loads(convbench(tmp_path, "status", "many", "--json").out)["result"]
        assert "shards" not in shown


@pytest.mark.slow
def test_who_lost_contact_writes_for_nobody_and_pays_no_more(tmp_path: Path) -> None:
    """A process sleeps; its scheduler has the shard begun again by another; it wakes."""
    with spawn("provider") as url:
        quiet(url, latency_s=0.3)
        prepared = ["--shards", "2", "--on", "k8s"]
        assert "its manifest is" in convbench(tmp_path, *command(url, "run", *prepared)).error
        run = tmp_path / "run"
        one = ("build", "--run", "run", "--api-base", f"{url}/v1", "--concurrency", "2",
               "--shard", "0/2", "--quiet")  # fmt: skip
        sleeper = start(tmp_path, *one)
        until(lambda: get(url, "/_stats")["calls"] >= 4, sleeper)
        sleeper.send_signal(signal.SIGSTOP)
        quiet(url)
        heir = convbench(tmp_path, *one)
        assert heir.code == 0, heir.err
        before = get(url, "/_stats")["calls"]
        records = (shards.attempt_folder(run, 0, 1) / "conversations.jsonl").read_bytes()
        sleeper.send_signal(signal.SIGCONT)
        late = finish(sleeper)
        assert late.code == 1
        assert "shard 0 was begun again by another process" in late.err
        assert get(url, "/_stats")["calls"] - before <= 2, "those that it had in its hands"
        assert shards.shard_folders(run)[0] == shards.attempt_folder(run, 0, 1)
        assert (shards.attempt_folder(run, 0, 1) / "conversations.jsonl").read_bytes() == records
        assert shard_states(run).left == {1: "not begun yet"}
        shown = json.loads(convbench(tmp_path, "status", "run", "--json").out)
        assert shown["result"]["shards"] == {
            "count": 2, "done": 1, "working": [], "left": {"1": "not begun yet"},
        }  # fmt: skip
        assert shown["next"] == ["convbench build --run run"]
        rest = convbench(tmp_path, *command(url, "run"))
        assert rest.code == 0, rest.err
        assert len(said(run)) == 24
        assert doubled(run) == {}


@pytest.mark.exhaustive
@pytest.mark.slow
def test_ctrl_c_ends_the_processes_and_the_command_goes_on_later(tmp_path: Path) -> None:
    with spawn("provider") as url:
        quiet(url, latency_s=0.3)
        process = start(tmp_path, *command(url, "run", "--shards", "4", "--on", "local:2"))
        until(lambda: get(url, "/_stats")["calls"] >= 10, process)
        pids = [pid for pid, _ in working(tmp_path / "run")]
        assert pids
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert done.code == 130, done.err
        assert "Resume: convbench build --run run" in done.err
        assert all(gone(pid) for pid in pids)
        states = shard_states(tmp_path / "run")
        assert set(states.left.values()) <= {"interrupted", "not begun yet"}
        assert states.working == {}
        quiet(url)
        done = convbench(tmp_path, *command(url, "run", "--on", "local:2"))
        assert done.code == 0, done.err
        assert len(said(tmp_path / "run")) == 24
        assert doubled(tmp_path / "run") == {}
