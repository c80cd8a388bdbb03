"""The folder of sidecars, hostile, full or missing: rows are what the records say."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from convbench.store import Run, index, sidecars
from convbench.store.index import ConversationRow
from convbench.store.jsonl import Appender
from convbench.util.cache import cache_folder
from tests.helpers.indexed_runs import cache, make_run, rows_of_conversations
from tests.helpers.runs import conversation

__all__ = ["cache"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose rows are stored."""
    return make_run(tmp_path / "run")


@pytest.fixture
def rows(run: Run) -> list[ConversationRow]:
    """What its records say."""
    return rows_of_conversations(run)


def sidecars_of(cache: Path) -> list[Path]:
    """The sidecars there are."""
    return sorted(cache.glob("*.parquet"))


def test_the_folder_and_its_files_are_the_users_alone(run: Run, cache: Path) -> None:
    before = os.umask(0)
    try:
        list(run.conversation_rows())
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in cache.iterdir()} == {0o600}


def forge(cache: Path) -> bytes:
    """Return a sidecar that lies of one conversation, of another run than any here."""
    import pyarrow.parquet as parquet

    path = sidecars_of(cache)[0]
    table = parquet.read_table(path)
    column = table.schema.get_field_index("conversation_id")
    lies = table.set_column(column, "conversation_id", [["forged"] * len(table)])
    other = cache / "lies"
    parquet.write_table(lies, other)
    found = other.read_bytes()
    other.unlink()
    return found


def as_link(path: Path, lies: bytes) -> None:
    target = path.with_name("target")
    target.write_bytes(lies)
    target.chmod(0o600)
    path.unlink()
    path.symlink_to(target)


def as_writable(path: Path, lies: bytes) -> None:
    path.write_bytes(lies)
    path.chmod(0o666)


def as_foreign(path: Path, lies: bytes) -> None:
    path.write_bytes(lies)
    try:
        os.chown(path, 4321, 4321)
    except PermissionError:
        pytest.skip("only root gives files away")


def as_pipe(path: Path, lies: bytes) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path, lies: bytes) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("put", [as_link, as_writable, as_foreign, as_pipe, as_folder])
def test_what_others_may_have_put_there_is_not_read(
    run: Run, rows: list[ConversationRow], cache: Path, put: Callable[[Path, bytes], None]
) -> None:
    list(run.conversation_rows())
    lies = forge(cache)
    for path in sidecars_of(cache):
        put(path, lies)
    for _ in range(2):
        assert list(run.conversation_rows()) == rows


def test_a_sidecar_that_came_with_a_run_is_not_read(
    run: Run, rows: list[ConversationRow], cache: Path, tmp_path: Path
) -> None:
    """Under the names that they have in the cache, beside the run and in a folder of its name."""
    list(run.conversation_rows())
    lies = forge(cache)
    names = [path.name for path in sidecars_of(cache)]
    shutil.rmtree(cache)
    for folder in (run.path, run.path / "index", run.path / ".convbench"):
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_bytes(lies)
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    assert list(run.conversation_rows()) == rows
    assert list(Run.open(copy).conversation_rows()) == rows_of_conversations(Run.open(copy))


@pytest.mark.parametrize("left", [0, 3, 200, -1])
def test_a_cut_sidecar_is_made_anew(
    run: Run, rows: list[ConversationRow], cache: Path, left: int
) -> None:
    list(run.conversation_rows())
    for path in sidecars_of(cache):
        data = path.read_bytes()
        path.write_bytes(data[:left])
        assert list(run.conversation_rows()) == rows
        assert path.read_bytes() == data


@pytest.mark.parametrize("at", [8, 300, -40])
def test_a_sidecar_that_cannot_be_read_is_made_anew(
    run: Run, rows: list[ConversationRow], cache: Path, at: int
) -> None:
    """Damaged inside, with both of its marks."""
    list(run.conversation_rows())
    path = sidecars_of(cache)[0]
    data = bytearray(path.read_bytes())
    data[at : at + 30] = b"\xff" * len(data[at : at + 30])
    path.write_bytes(data)
    path.chmod(0o600)
    assert list(run.conversation_rows()) == rows
    assert list(run.conversation_rows()) == rows


def test_a_sidecar_may_go_while_it_is_read(
    run: Run, rows: list[ConversationRow], cache: Path
) -> None:
    list(run.conversation_rows())
    reading = index.Index(index.CONVERSATIONS, [run.conversations_file])
    coming = reading.newest_rows()
    first = next(coming)
    shutil.rmtree(cache)
    assert [first, *coming] == rows


def unusable(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file")


def foreign(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def link(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [unusable, foreign, link])
def test_a_folder_that_cannot_be_used_is_reported_once(
    run: Run,
    rows: list[ConversationRow],
    cache: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
) -> None:
    spoil(cache)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert list(run.conversation_rows()) == rows
    assert [str(cache) in one.getMessage() for one in caplog.records] == [True]
    assert not cache.is_dir() or not list(cache.iterdir())


def test_a_full_disk_leaves_nothing_behind(run: Run, cache: Path) -> None:
    """No file of more than 512 bytes fits: rows are the same, and it is said in one line."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from convbench.store import Run, index, sidecars\n"
        "sidecars.SETTLE_SECONDS, index.SMALL, index.WORTH = -1.0, 0, 1\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
        "for _ in range(2): print(sum(1 for _ in Run.open(Path(sys.argv[1])).conversation_rows()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(run.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["61", "61"]
    assert done.stderr.count("\n") == 1
    assert f"no index can be stored in {cache} (File too large)" in done.stderr
    assert list(cache.iterdir()) == []


def test_a_user_without_a_home_needs_none(
    run: Run,
    rows: list[ConversationRow],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in a container whose user has no entry."""
    monkeypatch.delenv("CONVBENCH_CACHE")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert list(run.conversation_rows()) == rows
    assert [record.getMessage().count("home") for record in caplog.records] == [1]


def test_a_folder_with_letters_of_a_pattern_is_left_alone(
    run: Run,
    rows: list[ConversationRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DuckDB would take its name for a pattern."""
    monkeypatch.setenv("CONVBENCH_CACHE", str(tmp_path / "a*[b]?"))
    for _ in range(2):
        assert list(run.conversation_rows()) == rows
    assert not cache_folder("index").exists()


def test_a_young_file_is_not_stored(
    run: Run, rows: list[ConversationRow], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change within the clock's step could leave it with the same time."""
    monkeypatch.setattr(sidecars, "SETTLE_SECONDS", 3600.0)
    assert list(run.conversation_rows()) == rows
    assert not cache.exists()


def test_the_folder_is_kept_within_its_bound(run: Run, cache: Path) -> None:
    """Those used longest ago go first, and what killed processes left after a day."""
    list(run.conversation_rows())
    list(run.verdict_rows())
    paths = sidecars_of(cache)
    for age, path in enumerate(reversed(paths)):
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    old, young = cache / ".old.1.tmp", cache / ".young.2.tmp"
    for path in (old, young):
        path.write_text("left")
    os.utime(old, (1_000_000, 1_000_000))
    folder = sidecars.Sidecars("conversations")
    folder.prune_folder(most=0)
    assert sidecars_of(cache) == paths, "nothing was stored since"
    sidecars._prune_files(cache, sum(path.stat().st_size for path in paths[1:]))
    assert sidecars_of(cache) == paths[1:]
    assert (old.exists(), young.exists()) == (False, True)


def test_kills_amid_storing_harm_nothing(
    run: Run, rows: list[ConversationRow], cache: Path
) -> None:
    """Ended at any instant, the next process reads the same rows and stores what is missing."""
    code = (
        "import sys; from pathlib import Path; from convbench.store import Run, index, sidecars\n"
        "import pyarrow.parquet\n"
        "sidecars.SETTLE_SECONDS, index.SMALL, index.WORTH = -1.0, 0, 1\n"
        "run = Run.open(Path(sys.argv[1])); print('up', flush=True)\n"
        "while True: list(run.conversation_rows()); [one.unlink(missing_ok=True) for one in "
        "Path(sys.argv[2]).glob('*.parquet')]"
    )
    for number in range(6):
        worker = subprocess.Popen(
            [sys.executable, "-c", code, str(run.path), str(cache)], stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        with worker.stdout:
            worker.stdout.readline()
            threading.Event().wait(0.013 * number)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        assert list(run.conversation_rows()) == rows
        assert len(sidecars_of(cache)) == 1


def test_processes_at_once_write_equal_files(
    run: Run, rows: list[ConversationRow], cache: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from convbench.store import Run, index, sidecars\n"
        "sidecars.SETTLE_SECONDS, index.SMALL, index.WORTH = -1.0, 0, 1\n"
        "print(*(row.conversation_id for row in Run.open(Path(sys.argv[1])).conversation_rows()))"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    printed = [worker.communicate()[0].split() for worker in workers]
    assert printed == [[row.conversation_id for row in rows]] * 3
    assert len(list(cache.iterdir())) == 1


def test_a_writer_beside_a_reader_loses_no_row_and_doubles_none(run: Run) -> None:
    """Lines are appended meanwhile: each reading is a beginning of the file."""
    talks = [
        conversation(n % 30, n % 2, key=f"new{n}", conversation_id=f"new-{n}") for n in range(200)
    ]
    before = [row.key for row in run.conversation_rows()]
    keys = [*before, *(talk.key for talk in talks)]

    def write() -> None:
        for start in range(0, len(talks), 10):
            with Appender(run.conversations_file) as file:
                for talk in talks[start : start + 10]:
                    file.write(talk.model_dump_json().encode())

    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    while writer.is_alive() or not counts:
        seen = [row.key for row in run.conversation_rows()]
        assert seen == keys[: len(seen)]
        counts.append(len(seen))
    writer.join()
    assert counts == sorted(counts)
    assert [row.key for row in run.conversation_rows()] == keys
    assert list(run.conversation_rows()) == rows_of_conversations(run)
