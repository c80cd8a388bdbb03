"""Rows of runs: stored for the next start, and what is seen until those of large runs are made."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from multidict import MultiDict

from convbench.errors import QueryError, RunError
from convbench.store import Run
from convbench.store.limits import MemoryLimit
from convbench.store.sidecars import SETTLE_SECONDS
from convbench.util.cache import CACHE
from convbench.viewer import follow
from convbench.viewer.figures import overview_figures
from convbench.viewer.filters import list_page
from convbench.viewer.follow import GrowingIndex, RowMaker, run_status
from convbench.viewer.index import ViewIndex, build_index
from convbench.viewer.library import open_members
from convbench.viewer.rows import RowFiles, _RowMaker
from tests.helpers.viewer_runs import RIGHT, WRONG, judged, make, question, said, world
from tests.helpers.viewing import Looked, viewing
from tests.support.exhaustive import only

PATIENCE_S = 300.0
"""Longest to wait for another process on a busy machine."""
QUESTIONS = [question(n) for n in range(6)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of three conversations that counts as large, and a folder for its sidecars."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(follow, "LARGE", 1)
    monkeypatch.setattr(follow, "EASE", 0.0)
    monkeypatch.setattr(follow, "SHOWN", 2)
    talks = [(n, 0, RIGHT, {}) for n in range(3)]
    return make(tmp_path / "run", QUESTIONS, talks, {"rules": lambda k: 8.0})


def wait_until_settled() -> None:
    """Wait until what runs hold can be stored."""
    time.sleep(SETTLE_SECONDS + 0.1)


def files(tmp_path: Path) -> list[Path]:
    """The sidecars."""
    return sorted((tmp_path / "cache" / "index").glob("*"))


def seen(index: ViewIndex) -> tuple[object, object]:
    """What a page shows of an index."""
    figures = overview_figures(index)
    return list_page(index, MultiDict()), {k: figures[k] for k in ("totals", "methods", "facets")}


def until(done: Callable[[], bool]) -> None:
    """Wait for another process."""
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts of which rows were made."""
    texts: list[bytes] = []
    make_rows = _RowMaker.make_rows

    def noted(self: _RowMaker, name: str, path: Path, part: Path, made: dict[str, Path]) -> bool:
        texts.append(part.read_bytes())
        return make_rows(self, name, path, part, made)

    monkeypatch.setattr(_RowMaker, "make_rows", noted)
    return texts


def test_stored_rows_are_those_that_a_new_start_makes(
    tmp_path: Path, run: Run, read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were, then grown: by rows and verdicts, and rows of all kinds with a child run.
    Two viewers have them at a time, and only what is new is read again."""
    other = world(tmp_path / "world")
    both = [run, other, *other.child_runs()]
    wait_until_settled()
    first = build_index(both)
    assert len(read) == 6
    index = build_index(both)
    assert len(read) == 6
    assert seen(index) == seen(first)
    first.close()
    stored = files(tmp_path)
    assert {(path.suffix, path.stat().st_mode & 0o777) for path in stored} == {(".parquet", 0o600)}
    judged(run, 0, "rules", 3.0)
    said(run, 3, RIGHT)
    index = build_index(both)
    assert len(read) == 8
    monkeypatch.setenv(CACHE, str(tmp_path / "other"))
    fresh = build_index(both)
    assert index.total == 24
    assert seen(index) == seen(fresh)
    for row in list_page(index, MultiDict())["rows"]:
        name = row["conversation_id"]
        assert index.read_conversation(name) == fresh.read_conversation(name)
    assert list_page(index, MultiDict(q="magnet nothing-has-this"))["total"] == 0
    assert files(tmp_path) == stored
    index.close()
    fresh.close()


def test_of_a_file_that_grows_only_the_new_lines_are_read(run: Run, read: list[bytes]) -> None:
    """And all of it where it is another one, of the same name and place on the disk."""
    rows = RowFiles()
    build_index([run], rows=rows).close()
    before = run.conversations_file.read_bytes()
    said(run, 3, WRONG)
    with run.conversations_file.open("ab") as file:
        file.write(b'{"torn')
    read.clear()
    index = build_index([run], rows=rows)
    whole = run.conversations_file.read_bytes()
    assert read == [whole[len(before) :]]
    assert index.total == 4
    run.conversations_file.write_bytes(whole.replace(b'"attempt":0', b'"attempt":1')[:-6])
    read.clear()
    index = build_index([run], rows=rows)
    assert len(read[0]) == len(whole) - 6
    assert {row["attempts"] for row in list_page(index, MultiDict())["rows"]} == {2}


@pytest.mark.parametrize("typed", only("latest".__eq__, ["run", "./run", "../{}/run", "latest"]))
def test_a_run_is_known_however_its_folder_is_typed(
    typed: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where it lies, from elsewhere, by a link: the process that makes rows has the whole
    path, and a folder as it is typed has others."""
    talks = [(n, 0, RIGHT, {"conversation_id": f"of-the-child-{n}"}) for n in range(3)]
    make(run.path / "evals" / "child", QUESTIONS, talks, {"rules": lambda k: 8.0})
    wait_until_settled()
    monkeypatch.chdir(tmp_path)
    Path("latest").symlink_to("run")
    path = Path(typed.format(tmp_path.name))
    growing = GrowingIndex(partial(open_members, [path]))
    assert growing.partial == 2
    until(lambda: run_status(growing)["first"] is None)
    assert growing.index.total == 6
    growing.close()
    assert len(files(tmp_path)) == 4
    for number, other in ((3, path), (4, run.path)):
        if number == 4:
            monkeypatch.setattr(follow, "LARGE", 1 << 20)  # for what was appended
        again = GrowingIndex(partial(open_members, [other]))
        assert (again.partial, again.index.total) == (None, 3 + number)
        assert again.index.read_conversation("of-the-child-1")[0].path.name == "child"
        said(run, number, RIGHT)
        until(lambda: run_status(again)["version"] > 1)  # noqa: B023 - done before the next
        assert again.index.total == 4 + number
        again.close()
    assert len(files(tmp_path)) <= 5, "the file that grew may be stored once more"


def test_what_the_runs_are_no_longer_is_not_believed(
    tmp_path: Path, run: Run, read: list[bytes]
) -> None:
    """Other lines, questions, places and users; what broke: made again."""

    def made_again() -> int:
        read.clear()
        build_index([run]).close()
        return len(read)

    wait_until_settled()
    assert (made_again(), made_again()) == (2, 0)
    questions = run.examples_file.read_bytes()
    run.examples_file.write_bytes(questions.replace(b'"answer":"B"', b'"answer":"A"'))
    assert made_again() == 1, "what is graded by them"
    index = build_index([run])
    assert list_page(index, MultiDict(result="wrong"))["total"] == 3
    shutil.copy(run.conversations_file, tmp_path / "other")
    (tmp_path / "other").replace(run.conversations_file)
    assert made_again() == 1
    wait_until_settled()
    assert (made_again(), made_again()) == (1, 0)
    for file in files(tmp_path):
        file.chmod(0o666)
    assert made_again() == 2, "anybody could have written it"
    for file in files(tmp_path):
        shutil.copy(file, run.path / file.name)
        file.write_bytes(b"no table")
    assert made_again() == 2, "nor one that lies in the run"
    for file in files(tmp_path):
        file.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(RunError, match=r"index/\w+\.parquet.*; remove that file"):
        build_index([run])
    for file in files(tmp_path):
        file.unlink()
    copied = shutil.copytree(run.path, tmp_path / "copy")
    read.clear()
    build_index([Run.open(copied)]).close()
    assert len(read) == 2


@pytest.mark.exhaustive
def test_first_conversations_are_shown_until_all_are_read(look: Looked, run: Run) -> None:
    """The page says that they are not all, opens one, and goes over to the whole by itself; the
    next start has it at once."""
    wait_until_settled()
    made = RowMaker.is_running
    hold = Path(run.path.parent / "hold")
    hold.touch()

    class Held(RowMaker):
        is_running = property(lambda self: hold.exists() or made.fget(self))  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "RowMaker", Held)
        with viewing(run.path) as viewer:
            page = look.open(viewer.page("#/list"))
            page.locator("#live").get_by_text(
                "Only the first 2 conversations of each run"
            ).wait_for()
            assert page.locator(".count strong").inner_text() == "2"
            page.locator("tbody a").first.click()
            page.get_by_text("Magnets pull iron").wait_for(state="attached")
            page.go_back()
            hold.unlink()
            page.locator(".count strong", has_text="3").wait_for(timeout=PATIENCE_S * 1000)
            page.locator("#live").get_by_text("Only the first").wait_for(state="detached")
    again = GrowingIndex(lambda: [run])
    assert (again.partial, again.index.total) == (None, 3)
    again.close()


def test_damaged_records_are_told_and_read_once_they_are_mended(run: Run) -> None:
    whole = run.conversations_file.read_bytes()
    run.conversations_file.write_bytes(whole + b'{"key": 5}\n')
    growing = GrowingIndex(lambda: [run])
    until(lambda: run_status(growing)["problem"] is not None)
    found = run_status(growing)
    assert "conversations.jsonl:4" in found["problem"]
    assert (found["first"], growing.index.total) == (2, 2)
    run.conversations_file.write_bytes(whole)
    until(lambda: run_status(growing)["first"] is None)
    assert growing.index.total == 3
    growing.close()


def test_where_nothing_can_be_stored_rows_are_made_at_every_start(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    read: list[bytes],
) -> None:
    """Once, and not at every look."""
    wait_until_settled()
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv(CACHE, str(tmp_path / "no-folder"))
    growing = GrowingIndex(lambda: [run])
    until(lambda: run_status(growing)["first"] is None)
    assert growing.index.total == 3
    assert caplog.text.count(f"can be stored in {tmp_path / 'no-folder' / 'index'} ") == 1
    said(run, 3, RIGHT)
    read.clear()
    monkeypatch.setattr(follow, "LARGE", 1 << 20)
    until(lambda: run_status(growing)["version"] > 2)
    assert growing.index.total == 4
    assert len(read) == 1
    growing.close()


def test_a_process_that_is_killed_harms_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are made here then."""
    wait_until_settled()
    growing = GrowingIndex(lambda: [run])
    assert growing._maker is not None
    growing._maker._process.send_signal(signal.SIGKILL)
    until(lambda: run_status(growing)["first"] is None)
    assert growing.index.total == 3
    growing.close()
    index = build_index([run])
    assert index.total == 3
    assert {path.suffix for path in files(tmp_path)} == {".parquet"}


def test_a_viewer_that_ends_takes_its_process_along(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is amid its work, however long it takes to look."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(follow.sys, "executable", str(slow))
    growing = GrowingIndex(lambda: [run])
    maker = growing._maker
    assert maker is not None
    assert maker.is_running
    growing.close()
    assert not maker.is_running


HEAVY = "SELECT len(list(n)) AS n FROM range(12000000) t(n)"
"""Holds 96 MB at once, which DuckDB cannot put into temporary files."""


def test_what_needs_more_memory_than_there_is_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convbench.viewer.index.OFTEN", MemoryLimit(0, 64))
    index = build_index([run])
    with pytest.raises(QueryError, match="needs more memory than is allowed; narrow the query"):
        index.query_rows(HEAVY)
    assert index.total == 3, "others are answered as before"
    index.close()


def test_a_sidecar_that_was_removed_is_made_anew(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has a bound, say: the question is refused, pages come back."""
    wait_until_settled()
    monkeypatch.setattr(follow, "LARGE", 1 << 20)
    growing = GrowingIndex(lambda: [run])
    for file in files(tmp_path):
        file.unlink()
    for _ in range(2):
        with pytest.raises(QueryError, match="being rebuilt; try again in a moment"):
            list_page(growing.index, MultiDict(q="magnets"))
    until(lambda: run_status(growing)["version"] > 1)
    assert list_page(growing.index, MultiDict(q="magnets"))["total"] == 3
    growing.close()
