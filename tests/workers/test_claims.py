"""A shard has one holder; who lost it finds out, and nothing that it does counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.store import shards
from convbench.store.claims import (
    MOST_LOST,
    Held,
    Process,
    Watch,
    claim,
    ended,
    listed,
    reopen,
    this_process,
)
from convbench.store.exclusive import Register, put_once
from convbench.store.shards import ShardPlan, ShardTask, write_plan
from convbench.workers.worker import LOOK_S, PATIENCE, pause
from tests.rollout.cli import environment
from tests.support.commands import fork_server


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "shards" / "claims").mkdir(parents=True)
    (tmp_path / "shards" / "workers").mkdir()
    for index in range(3):
        (tmp_path / "shards" / f"{index:05}.0").mkdir()
    write_plan(tmp_path, ShardPlan(count=3, lease_s=0.5, tasks=(ShardTask(name="build"),)))
    return tmp_path


def take(run: Path, worker: str, watch: Watch | None = None) -> Held | None:
    return claim(run, range(3), ["build"], worker, watch or Watch(run, 0.5), set())


def test_each_shard_has_one_holder_and_is_done_once(run: Path) -> None:
    held = [take(run, f"w{n}") for n in range(4)]
    assert [one.index for one in held if one] == [0, 1, 2]
    assert held[3] is None
    assert held[0] is not None
    assert held[0].give_back({"build"})
    assert listed(run).done == [0]
    assert take(run, "w5") is None, "what is done is done"
    reopen(run, shards.read_plan(run), "build", {0})
    again = take(run, "w5")
    assert again is not None
    assert (again.index, again.taken_over) == (0, False)


def test_the_dead_are_succeeded_at_once_and_the_silent_after_their_lease(run: Path) -> None:
    first = take(run, "sleeper")
    assert first is not None
    beat = run / "shards" / "workers" / "sleeper"
    beat.write_text('{"beat": 1}')
    away = first.entry.process.model_copy(update={"machine": "another:1"})
    file = run / "shards" / "claims" / first.name
    file.write_text(first.entry.model_copy(update={"process": away}).model_dump_json())
    watch = Watch(run, 0.2)
    assert not watch.silent(first.entry.model_copy(update={"process": away}))
    beat.write_text('{"beat": 2}')  # it lives
    assert take(run, "heir", watch).index == 1  # type: ignore[union-attr]
    subprocess.run(["sleep", "0.3"], check=True)
    heir = claim(run, [0], ["build"], "heir", watch, set())
    assert heir is not None
    assert (heir.name, heir.taken_over, heir.entry.lost) == ("00000.2", True, 1)
    assert first.lost()
    assert not first.give_back({"build"}), "a zombie's word counts for nothing"
    assert listed(run).done == []
    assert heir.give_back({"build"})
    assert listed(run).done == [0]


def test_a_process_that_is_gone_is_known_to_be(run: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = this_process()
    told = Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    its = mine.model_copy(update={"pid": child.pid, "started": told})
    assert not ended(its)
    assert ended(its.model_copy(update={"started": "1"})), "its number is another's now"
    child.kill()
    child.wait()
    assert ended(its)
    assert not ended(Process(host="h", machine="", pid=1, started="0")), "only silence can tell"


def test_a_shard_that_ends_its_workers_is_given_up(run: Path) -> None:
    gone = this_process().model_copy(update={"started": "1"})
    held = take(run, "w0")
    assert held is not None
    for number in range(MOST_LOST):
        file = run / "shards" / "claims" / f"00000.{number + 1}"
        entry = held.entry.model_copy(update={"process": gone, "lost": number})
        file.write_text(entry.model_dump_json())
        held = claim(run, [0], ["build"], f"w{number + 1}", Watch(run, 0.5), set())
        assert held is not None
    last = held.entry.model_copy(update={"process": gone})
    (run / "shards" / "claims" / held.name).write_text(last.model_dump_json())
    assert claim(run, [0], ["build"], "last", Watch(run, 0.5), set()) is None
    assert listed(run).given_up == [0]


def test_a_takeover_copies_what_lies_there_and_fences_the_rest(run: Path) -> None:
    before = shards.part(run, 0, 0)
    zombie = (before / "conversations.jsonl").open("ab", buffering=0)
    zombie.write(b'{"a":1}\n{"torn":')
    new = shards.take_over(run, 0, 2, before)
    zombie.write(b'2}\n{"late":3}\n')
    zombie.close()
    assert shards.parts(run)[0] == new
    assert [shards.superseded(one) for one in (before, new, run)] == [True, False, False]
    assert (new / "conversations.jsonl").read_bytes() == b'{"a":1}\n{"torn":'


def test_ten_thousand_shards_are_listed_with_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at the folder and one file a shard: counted, for a time would hang on the load."""
    from convbench.store import claims

    count = 400
    (tmp_path / "shards" / "claims").mkdir(parents=True)
    plan = ShardPlan(count=count, tasks=(ShardTask(name="build"),))
    write_plan(tmp_path, plan)
    done = claims.Entry(kind="free", worker="w", process=this_process(), done=("build",))
    for index in range(count):
        for epoch in (1, 2):
            (tmp_path / "shards" / "claims" / f"{index:05}.{epoch}").write_text(
                done.model_dump_json()
            )
    looked = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(path) or real(path))
    assert len(listed(tmp_path, plan).done) == count
    assert len([path for path in looked if str(path).startswith(str(tmp_path))]) == 1


def _count(folder: str, times: int) -> None:
    for _ in range(times):
        Register(Path(folder)).change(lambda data: (str(int(data or b"0") + 1).encode(), None))


def test_a_register_loses_no_change_of_many_processes(tmp_path: Path) -> None:
    context = fork_server(environment())
    crowd = [context.Process(target=_count, args=(str(tmp_path), 40)) for _ in range(4)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert Register(tmp_path).read()[1] == b"160"
    assert len(list(tmp_path.iterdir())) < 80, "old ones are cleared away"


def test_who_slept_through_the_clearing_does_not_win(tmp_path: Path) -> None:
    """It makes a file below the newest; that its base is gone tells it."""
    register = Register(tmp_path)
    _count(str(tmp_path), 3)
    slept = False

    def step(data: bytes) -> tuple[bytes, None]:
        nonlocal slept
        if not slept:
            slept = True
            _count(str(tmp_path), 100)  # meanwhile
        return str(int(data) + 1).encode(), None

    register.change(step)
    assert register.read()[1] == b"104"
    assert put_once(tmp_path / "once", b"a")
    assert not put_once(tmp_path / "once", b"b")
    assert (tmp_path / "once").read_bytes() == b"a"


def test_who_waits_for_the_last_shard_looks_again_soon_and_spares_the_disk() -> None:
    """After a quarter of the time waited, so that nobody sleeps long once there is nothing left."""
    for lease_s in (1.0, 120.0):
        waited, looks = 0.0, 0
        while waited < 600:
            wait = pause(lease_s, waited)
            assert LOOK_S[0] * 0.7 <= wait <= max(LOOK_S[0], waited / PATIENCE) * 1.3
            waited, looks = waited + wait, looks + 1
        assert lease_s < 10 or looks < 250
