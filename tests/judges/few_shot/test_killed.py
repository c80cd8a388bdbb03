"""A judge that is killed in the middle goes on where it was, and tries nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from convbench.tasks.arc_agi.edit import SelfEdit
from tests.helpers import few_shot_runs
from tests.helpers.typed import type_here

JUDGE = """title: slow
extends: few-shot-pocket
args: {r: 4, max_rows: 40, max_tokens: 12}
"""


def command(run: Path, judge: Path) -> list[str]:
    return [sys.executable, "-m", "convbench", "judge", "--run", str(run), "--judge", str(judge),
            "--quiet"]  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.slow
def test_killed_in_the_middle(tmp_path: Path) -> None:
    tasks = few_shot_runs.some_tasks(2)
    edits = [
        SelfEdit(frozenset({"basic"}), "train_using_output_tokens", rate, 1).to_json()
        for rate in (1e-4, 1e-3, 1e-2)
    ]
    run = few_shot_runs.edits_run(tmp_path / "run", tasks, {one.example_id: edits for one in tasks})
    (tmp_path / "slow.yaml").write_text(JUDGE)
    asked, kept = command(run.path, tmp_path / "slow.yaml"), run.path / "few-shot.jsonl"
    first = subprocess.Popen(asked, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while first.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 3):
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = kept.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    assert 3 <= whole.count(b"\n") < 8, "killed in the middle"
    done = type_here(*asked[3:])
    assert done.code == 0, done.err
    after = kept.read_bytes()
    assert after.startswith(whole)
    keys = [orjson.loads(line)["key"] for line in after.splitlines() if line]
    assert len(keys) == len(set(keys)) == 2 + 6, "2 tasks as they are, 6 edits"
    verdicts = list(run.verdicts())
    assert len(verdicts) == len({v.conversation_id for v in verdicts}) == 6
    assert not any(v.failure for v in verdicts)
    assert run.verdicts_file.read_bytes().count(b"\n") == 6, "each once on the disk too"
