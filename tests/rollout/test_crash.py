"""A build that is killed, interrupted or started twice loses nothing and doubles nothing."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.cli import convbench, finish, get, post, records, said, start, until
from tests.support.exhaustive import exhaustive

WORKERS = 8


def command(url: str, run: str, *more: str) -> list[str]:
    return [
        "build", "demo", "--tasks", "20", "--model", "openai/scripted", "--api-base", f"{url}/v1",
        "--concurrency", str(WORKERS), "--run", run, "--quiet", *more,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "hits"), [(6, 2), exhaustive((20, 10))])
def test_killed_at_random_moments_it_ends_as_if_never_killed(
    kills: int, hits: int, provider: str, tmp_path: Path
) -> None:
    """20 questions x 3 samples x 3 turns; each session is killed after some of its calls."""
    whole = convbench(tmp_path, *command(provider, "whole"))
    assert whole.code == 0, whole.err
    least = get(provider, "/_stats")["calls"]
    expected = said(tmp_path / "whole")
    assert (least, len(expected)) == (180, 60)

    post(provider, "/_reset")
    post(provider, "/_config", {"latency_s": 0.08})
    moments, run = random.Random(20), tmp_path / "killed"
    lost, kills_in_flight = 0, 0
    for kill in range(kills):
        calls, kept = get(provider, "/_stats")["calls"], len(records(run / "calls.jsonl"))
        process = start(tmp_path, *command(provider, "killed"))
        wanted = calls + (0 if kill == 0 else moments.randint(1, 2 * WORKERS - 4))
        wanted = min(wanted, calls + least - kept)
        until(lambda wanted=wanted: get(provider, "/_stats")["calls"] >= wanted, process)
        time.sleep(moments.uniform(0, 0.08))
        process.kill()
        finish(process)
        asked = get(provider, "/_stats")["calls"] - calls
        answered = len(records(run / "calls.jsonl")) - kept
        in_flight = asked - answered
        assert 0 <= in_flight <= WORKERS
        lost += in_flight
        kills_in_flight += in_flight > 0
    ended = convbench(tmp_path, *command(provider, "killed"))
    assert ended.code == 0, ended.err
    assert kills_in_flight >= hits, "the kills must hit calls in flight"
    assert said(run) == expected
    stats = get(provider, "/_stats")
    assert least <= stats["calls"] <= least + lost
    assert stats["requests"] == least


def test_killed_before_run_json_it_starts_afresh(tmp_path: Path) -> None:
    """A directory with the leavings of `create` and no run.json is no run yet."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("examples.jsonl", ".lock", ".examples.jsonl.123.tmp", ".run.json.123.tmp"):
        (run / name).write_text("{")
    done = convbench(
        tmp_path, "build", "demo", "--tasks", "2", "--model", "scripted:policy", "--run", "run"
    )
    assert done.code == 0, done.err
    assert len(said(run)) == 6


def test_something_else_in_the_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("mine")
    done = convbench(tmp_path, "build", "demo", "--model", "scripted:policy", "--run", "run")
    assert "is not a run" in done.error
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_ctrl_c_ends_at_once_and_names_the_command_that_resumes(
    provider: str, tmp_path: Path
) -> None:
    post(provider, "/_config", {"latency_s": 600.0, "schedule": {}})
    process = start(tmp_path, *command(provider, "run"))
    until(lambda: get(provider, "/_stats")["in_flight"] >= WORKERS, process)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 130
    assert "Traceback" not in err
    found = re.search(r"Resume: convbench (.*)", err)
    assert found, err
    post(provider, "/_config", {"latency_s": 0.0})
    resumed = convbench(tmp_path, *shlex.split(found[1]))
    assert resumed.code == 0, resumed.err
    assert len(said(tmp_path / "run")) == 60


def test_a_second_process_on_a_run_is_refused_at_once(provider: str, tmp_path: Path) -> None:
    post(provider, "/_config", {"latency_s": 600.0})
    first = start(tmp_path, *command(provider, "run"))
    try:
        until(lambda: get(provider, "/_stats")["in_flight"] >= WORKERS, first)
        calls = get(provider, "/_stats")["calls"]
        for again in (command(provider, "run"), ["build", "--run", "run", "--quiet"]):
            refused = convbench(tmp_path, *again)
            assert "another process is writing to this run" in refused.error
        assert get(provider, "/_stats")["calls"] == calls
        assert first.poll() is None
    finally:
        first.kill()
        finish(first)
    shutil.rmtree(tmp_path / "run")
