"""Real processes that are killed, started twice, or race for one name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench.util.guard import find_descendants, guard_command
from tests.helpers import tiny
from tests.helpers.cli import ROOT, Done, convbench, environment, finish, start
from tests.helpers.hub_client import Client
from tests.support.exhaustive import first_of
from tests.support.processes import PATIENCE_S, until

SLOW = """
import os, subprocess, sys, time

def run(folder, recipe):
    words, quiet = [sys.executable, "-c", STUBBORN], subprocess.DEVNULL
    child = subprocess.Popen(words, stdout=quiet, stderr=quiet, start_new_session=True)
    name = folder / f"pids-{os.environ.get('RANK', '0')}"
    name.write_text(f"{os.getpid()} {child.pid} {os.getppid()} ")
    while True:
        time.sleep(1)

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
if __name__ == "__main__":
    from trainers import common

    common.main(run)
"""
"""A trainer that starts a child in a session of its own, writes down who they are, and hangs."""


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a judged run, weights, and the recipe `slow.yaml`; whoever still runs at the
    end is killed."""
    tiny.judged_run(tmp_path / "run")
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "slow.yaml").write_text(f"title: slow\ntrainer: {tmp_path / 'slow.py'}\n")
    yield tmp_path
    for pid in pids(tmp_path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def pids(place: Path) -> list[int]:
    """Everyone who said who they are: trainers, their children, their launchers."""
    return [int(word) for file in place.rglob("pids-*") for word in file.read_text().split()]


def training(place: Path, *more: str) -> subprocess.Popen[str]:
    """Start `train` with the slow trainer."""
    words = ("--run", "run", "--model", "local:pocket", *more)
    return start(place, "train", "slow.yaml", *words)


@pytest.mark.parametrize("number", first_of([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
def test_workers_die_with_their_parent(number: int, place: Path) -> None:
    """The trainer, what it started in another session, and what ignores SIGTERM."""
    parent = training(place)
    until(lambda: len(pids(place)) == 3, "the trainer begins")
    os.kill(parent.pid, number)
    done = finish(parent)
    until(lambda: not any(map(alive, pids(place))), "workers outlive their parent")
    assert done.code != 0
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_the_workers_of_a_launcher_die_too(place: Path) -> None:
    """`accelerate launch` starts two, in sessions of their own."""
    parent = training(place, "--launch", "ddp")
    until(lambda: len(pids(place)) == 6, "two trainers begin")
    os.kill(parent.pid, signal.SIGKILL)
    finish(parent)
    until(lambda: not any(map(alive, pids(place))), "workers outlive their parent")


def test_a_guard_that_is_killed_takes_the_trainer_along(place: Path) -> None:
    parent = training(place)
    until(lambda: len(pids(place)) == 3, "the trainer begins")
    trainer, _, guard = pids(place)
    os.kill(guard, signal.SIGKILL)
    done = finish(parent)
    until(lambda: not alive(trainer), "the trainer outlives its guard")
    assert "error: the worker" in done.error


def test_the_guard_leaves_nobody_behind_when_the_command_ends(tmp_path: Path) -> None:
    """Not a child that left its parent for another session either."""
    file = tmp_path / "pid"
    program = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; "
        f"time.sleep(600)'], start_new_session=True); open({str(file)!r}, 'w').write(str(p.pid))"
    )
    words = guard_command([sys.executable, "-c", program])
    with subprocess.Popen(words, stdin=subprocess.PIPE) as guard:
        assert guard.wait(PATIENCE_S) == 0
    until(lambda: not alive(int(file.read_text())), "an orphan lives on")
    assert find_descendants(os.getpid()).count(int(file.read_text())) == 0


def test_a_run_and_a_folder_that_are_trained_on_are_held(place: Path) -> None:
    """Against a second training into the folder, and against writers to the run: each worker reads
    it anew, so that a verdict more would be a row more for one of them. Another folder is free."""
    first = training(place)
    until(lambda: len(pids(place)) == 3, "the trainer begins")
    second = training(place)
    judge = start(place, "judge", "--judge", "rules", "--run", "run")
    beside = training(place, "--out", "other")
    said = finish(second).error
    assert f"training into this folder (convbench train, process {first.pid})" in said
    assert "checkpoints/slow" in said
    assert "training on this run (convbench train, process " in finish(judge).error
    until(lambda: len(pids(place)) == 6, "another training reads the run too")
    for process in (first, beside):
        assert process.poll() is None
        process.kill()
        finish(process)


def test_after_a_crash_the_same_command_goes_on_by_itself(place: Path) -> None:
    """As soon as the workers are gone, which hold the lock as long as they live."""
    first = training(place)
    until(lambda: len(pids(place)) == 3, "the trainer begins")
    old = pids(place)
    first.kill()
    finish(first)
    for file in place.rglob("pids-*"):
        file.unlink()
    ends = time.monotonic() + PATIENCE_S
    again = training(place)
    while not pids(place):
        if again.poll() is not None:
            assert "another process is" in finish(again).error
            assert time.monotonic() < ends
            again = training(place)
        time.sleep(0.05)
    assert not any(map(alive, old)), "never two at once"
    again.kill()
    finish(again)


def together(place: Path, *words: str, many: int = 2) -> list[Done]:
    """Start the same command several times at once; return how each ended."""
    return [finish(process) for process in [start(place, *words) for _ in range(many)]]


def one_each(ended: list[Done], refusal: str) -> None:
    """One or more did it whole; the others were refused in a line each."""
    assert [done for done in ended if done.code == 0], [done.err for done in ended]
    for done in ended:
        if done.code != 0:
            assert refusal in done.error, done.err


def test_imports_into_one_folder(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (tmp_path / "log.jsonl").write_text(json.dumps({**row, "reward": 1}) + "\n")
    ended = together(tmp_path, "import", "log.jsonl", "--run", "run")
    assert [done.code for done in ended].count(0) == 1
    one_each(ended, "not empty")
    assert (tmp_path / "run" / "run.json").is_file()
    assert not list(tmp_path.glob(".import-*"))


def test_imports_without_a_name_are_runs_of_their_own(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (tmp_path / "log.jsonl").write_text(json.dumps({**row, "reward": 1}) + "\n")
    ended = together(tmp_path, "import", "log.jsonl")
    assert [done.code for done in ended] == [0, 0], [done.err for done in ended]
    runs = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    assert len(runs) == 2
    assert (tmp_path / "runs" / "latest").resolve() in [path.resolve() for path in runs]


@pytest.mark.slow
def test_judges_and_evals_at_once(tmp_path: Path) -> None:
    """Whoever comes second is refused in a line, and what the first made is whole."""
    made = convbench(
        tmp_path, "build", "demo", "--model", "scripted:policy", "--tasks", "10", "--samples", "1",
        "--run", "run",
    )  # fmt: skip
    assert made.code == 0, made.err
    one_each(together(tmp_path, "judge", "--judge", "rules", "--run", "run"), "writing to this run")
    lines = (tmp_path / "run" / "verdicts.jsonl").read_text().splitlines()
    assert len(lines) == 10
    ended = together(tmp_path, "eval", "scripted:policy", "--run", "run")
    for done in ended:
        assert done.code == 0 or "writing to this run" in done.error or "already" in done.error
    assert [done for done in ended if done.code == 0]
    (child,) = (tmp_path / "run" / "evals").iterdir()
    assert len((child / "conversations.jsonl").read_text().splitlines()) == 2


@pytest.mark.exhaustive
def test_experiments_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "title: small\ntasks: [demo]\nmodes: [standard]\nmodel: scripted:policy\n"
        "judges: [rules]\nlearners: [base]\ncount: 10\n"
    )
    ended = together(tmp_path, "experiment", "small.yaml", "--run", "root")
    one_each(ended, "doing the experiment in root (convbench experiment")
    (cell,) = [path.parent for path in (tmp_path / "root").glob("*/run.json")]
    keys = [json.loads(line)["key"] for line in (cell / "conversations.jsonl").open()]
    assert len(keys) == len(set(keys)) > 0


LATE = """
import sys, time
from pathlib import Path
from convbench.errors import HubError
from convbench.hub import repo

class Clock:
    def sleep(seconds):
        end = time.monotonic() + 60
        while not Path(sys.argv[4]).exists() and time.monotonic() < end:
            time.sleep(0.05)

repo.time = Clock  # the pause before a second try lasts as long as the test wants
try:
    repo.upload_folder(sys.argv[1], Path(sys.argv[2]), kind=sys.argv[3])
except HubError as error:
    sys.exit(f"refused: {error}")
"""


def laid(folder: Path, name: str) -> Path:
    """A set of a run of this name."""
    (folder / name / "run").mkdir(parents=True)
    (folder / name / "run" / "run.json").write_text(json.dumps({"id": name}))
    (folder / name / "README.md").write_text(f"# {name}\n")
    return folder / name


def send(repo: str, folder: Path, kind: str) -> None:
    """`upload`, for the client's process."""
    from convbench.hub import repo as hub_repo

    hub_repo.FIRST_PAUSE = 0.01
    hub_repo.upload_folder(repo, folder, kind=kind)  # type: ignore[arg-type]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", first_of(["dataset", "model"]))
def test_of_two_that_publish_to_one_new_name_the_second_is_refused(
    kind: str, hub: Client, tmp_path: Path
) -> None:
    """The first looks, stumbles over a fault of the Hub's and waits; another fills the name; then
    it goes on."""
    name = f"alice/race-{kind}"
    one, two = laid(tmp_path, "one"), laid(tmp_path, "two")
    hub.hub.fail("POST", "/commit/", status=503)
    words = [sys.executable, "-c", LATE, name, str(one), kind, str(tmp_path / "filled")]
    env = environment() | hub.hub.client_env(tmp_path / "home", token="hf_alice")
    late = subprocess.Popen(words, env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until(lambda: any("/commit/" in entry.path for entry in hub.hub.log), "the first commits")
    hub(send, name, two, kind)
    (tmp_path / "filled").touch()
    _, err = late.communicate(timeout=PATIENCE_S)
    files = hub.hub.repo(name, kind).head.files
    assert "another commit was made in between" in err
    assert (late.returncode, b'"two"' in bytes(files["run/run.json"].data)) == (1, True)
