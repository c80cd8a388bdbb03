"""A shard has one process at a time; who lost it finds out, and nothing that it does counts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from convbench.engine import Budget, Caller, Journal
from convbench.errors import RunError
from convbench.models import open_model
from convbench.store import shards
from convbench.store.process import Process, has_ended, this_process
from convbench.store.shard_attempts import (
    LEFT,
    MOST_KILLED,
    WORKING,
    LostShard,
    ShardWorker,
    begin_attempt,
    mark_left,
    refuse_in_work,
    shard_states,
)
from convbench.store.shards import ShardPlan, ShardTask, write_plan
from tests.helpers.talk import QUICK, run_talk
from tests.support.provider import Provider

COUNT = 3


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for index in range(COUNT):
        (tmp_path / "shards" / f"{index:05}.0").mkdir(parents=True)
        (tmp_path / "shards" / f"{index:05}.0" / "run.json").write_text("{}")
    write_plan(tmp_path, ShardPlan(count=COUNT, tasks=(ShardTask(name="build"),)))
    return tmp_path


def killed(folder: Path, number: int = 0) -> None:
    """Leave a folder as a process that was killed there does."""
    process = this_process().model_copy(update={"started": "1"})
    (folder / WORKING).write_text(ShardWorker(process=process, killed=number).model_dump_json())


def test_a_shard_is_begun_ended_and_resumed_in_its_folder(run: Path) -> None:
    mark_left(run, {0: "not begun yet", 2: "not begun yet"})
    assert shard_states(run).left == {0: "not begun yet", 2: "not begun yet"}
    first = begin_attempt(run, 0)
    assert (first.number, first.folder) == (0, shards.attempt_folder(run, 0, 0))
    states = shard_states(run)
    assert (states.done_count, list(states.working), states.alive_shards) == (1, [0], [0])
    with pytest.raises(RunError, match="1 of its shards is running; expected none for merging"):
        refuse_in_work(run, "merging")
    first.end_work("budget: spent")
    assert shard_states(run).left[0] == "budget: spent"
    again = begin_attempt(run, 0)
    assert again == first, "who ended leaves no copy"
    again.end_work(None)
    assert shard_states(run).done_count == 2
    refuse_in_work(run, "merging")


def test_who_was_killed_or_lost_contact_is_followed_in_a_folder_of_its_own(run: Path) -> None:
    first = begin_attempt(run, 1)
    sleeper = (first.folder / "conversations.jsonl").open("ab", buffering=0)
    sleeper.write(b'{"a":1}\n{"torn":')
    first.raise_if_lost()
    heir = begin_attempt(run, 1)
    sleeper.write(b'2}\n{"late":3}\n')
    sleeper.close()
    assert heir.folder == shards.shard_folders(run)[1] == shards.attempt_folder(run, 1, 1)
    assert [shards.is_superseded(one) for one in (first.folder, heir.folder, run)] == [
        True, False, False,
    ]  # fmt: skip
    assert (heir.folder / "conversations.jsonl").read_bytes() == b'{"a":1}\n{"torn":'
    with pytest.raises(LostShard, match="shard 1 was begun again by another process"):
        first.raise_if_lost()
    heir.raise_if_lost()
    first.end_work(None)  # its word counts for nothing
    assert list(shard_states(run).working) == [1]
    heir.end_work(None)
    assert shard_states(run).done_count == COUNT
    assert not [name for name in os.listdir(run / "shards") if name.endswith(".tmp")]


def test_many_that_begin_at_once_get_a_folder_each(run: Path) -> None:
    start = threading.Barrier(6)

    def begin() -> int:
        start.wait(60)
        return begin_attempt(run, 0).number

    with ThreadPoolExecutor(6) as threads:
        crowd = [threads.submit(begin) for _ in range(6)]
        assert sorted(one.result(60) for one in crowd) == list(range(6))
    assert not [name for name in os.listdir(run / "shards") if name.endswith(".tmp")]


def test_a_process_that_is_gone_is_known_to_be(run: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = this_process()
    fields = Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()
    its = mine.model_copy(update={"pid": child.pid, "started": fields[19].decode()})
    assert not has_ended(its)
    assert has_ended(its.model_copy(update={"started": "1"})), "its number is another's now"
    child.kill()
    child.wait()
    assert has_ended(its)
    away = Process(host="h", machine="", pid=1, started="0")
    assert not has_ended(away), "of another machine nothing is known"
    (shards.attempt_folder(run, 0, 0) / WORKING).write_text(
        ShardWorker(process=its).model_dump_json()
    )
    refuse_in_work(run, "merging")
    (shards.attempt_folder(run, 1, 0) / WORKING).write_text(
        ShardWorker(process=away).model_dump_json()
    )
    with pytest.raises(RunError, match="is running"):
        refuse_in_work(run, "merging")


def test_a_shard_that_kills_its_processes_is_given_up_until_it_is_asked_for_again(
    run: Path,
) -> None:
    killed(shards.attempt_folder(run, 0, 0), 0)
    attempt = begin_attempt(run, 0)
    assert attempt.number == 1
    killed(attempt.folder, MOST_KILLED - 2)
    killed(shards.attempt_folder(run, 0, 1), MOST_KILLED - 2)
    attempt = begin_attempt(run, 0)
    assert attempt.number == 2
    killed(attempt.folder, MOST_KILLED - 1)
    for _ in range(2):
        with pytest.raises(RunError, match=f"shard 0 killed {MOST_KILLED} processes in a row"):
            begin_attempt(run, 0)
        assert shard_states(run).left[0].startswith("shard 0 killed")
        (shards.attempt_folder(run, 0, 2) / LEFT).unlink()
    mark_left(run, {0: "not begun yet"})
    assert begin_attempt(run, 0).number == 3


def test_ten_thousand_shards_are_listed_with_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at the folder and one file a shard: counted, for a time would hang on the load."""
    count = 400
    for index in range(count):
        (tmp_path / "shards" / f"{index:05}.0").mkdir(parents=True)
    write_plan(tmp_path, ShardPlan(count=count, tasks=(ShardTask(name="build"),)))
    mark_left(tmp_path, {7: "why"})
    looked = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(path) or real(path))
    states = shard_states(tmp_path)
    assert (states.done_count, states.left) == (count - 1, {7: "why"})
    assert len([path for path in looked if str(path).startswith(str(tmp_path))]) == 1


def test_no_call_of_a_lost_shard_is_sent(run: Path) -> None:
    attempt = begin_attempt(run, 0)
    ledger = Budget()
    ledger.before_attempt = attempt.raise_if_lost
    with Provider() as provider:
        model = open_model("openai/any", api_base=provider.api_base)
        caller = Caller(Journal(attempt.folder / "calls.jsonl"), ledger, retry=QUICK)
        assert run_talk(caller, model, range(1)).errors == {}
        sent = provider.stats.calls
        assert sent > 0
        begin_attempt(run, 0)
        late = run_talk(caller, model, range(1, 2))
        assert provider.stats.calls == sent
    assert isinstance(late.summary.stopped or next(iter(late.errors.values())), LostShard)
