"""Indexes of large runs: kept for the next start, and what is seen until the first is made."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pytest
from multidict import MultiDict

from convbench.cache import CACHE
from convbench.errors import QueryError
from convbench.store import Run
from convbench.store.label import write_label
from convbench.store.limits import OFTEN, Room
from convbench.view import kept
from convbench.view.figures import overview
from convbench.view.filters import listing
from convbench.view.growing import Growing, absorb
from convbench.view.index import Index, build_index
from convbench.view.pulse import pulse
from convbench.view.runs import members
from tests.support.exhaustive import only
from tests.view.conftest import Looked, viewing
from tests.view.runs import RIGHT, make, question, world
from tests.view.test_live import judged, said

PATIENCE_S = 300.0
"""Longest to wait for another process on a busy machine."""
QUESTIONS = [question(n) for n in range(6)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of three conversations that counts as large, and a folder for its index."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "LARGE", 0)
    monkeypatch.setattr("convbench.view.growing.EASE", 0.0)
    monkeypatch.setattr("convbench.view.first.SHOWN", 2)
    talks = [(n, 0, RIGHT, {}) for n in range(3)]
    return make(tmp_path / "run", QUESTIONS, talks, {"rules": lambda k: 8.0})


def files(tmp_path: Path) -> list[Path]:
    """The indexes that are kept."""
    return sorted((tmp_path / "cache" / "view").glob("*"))


def seen(index: Index) -> tuple[object, object]:
    """What a page shows of an index."""
    figures = overview(index)
    return listing(index, MultiDict()), {k: figures[k] for k in ("totals", "methods", "facets")}


def until(done: Callable[[], bool]) -> None:
    """Wait for another process."""
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)


def test_a_kept_index_is_the_one_that_a_new_start_makes(tmp_path: Path, run: Run) -> None:
    """As it was, then grown: by rows and verdicts after it was left, and once it is open; tags, and
    rows of all kinds with a child run."""
    other = world(tmp_path / "world")
    both = [run, other, *other.children()]
    kept.make(both)
    index = kept.opened(both)
    assert index is not None
    assert kept.opened(both) is None, "one viewer has it at a time"
    assert seen(index) == seen(build_index(both))
    judged(run, 0, "rules", 3.0)
    assert absorb(index), "what is open grows"
    index.close()
    said(run, 3, RIGHT)
    write_label(run, ["late"])
    index = kept.opened(both)
    assert index is not None
    assert index.total == 23
    assert absorb(index)
    fresh = build_index(both)
    assert seen(index)[1] == seen(fresh)[1]
    rows = {row["conversation_id"]: row["rewards"] for row in listing(index, MultiDict())["rows"]}
    anew = {row["conversation_id"]: row["rewards"] for row in listing(fresh, MultiDict())["rows"]}
    assert rows == anew
    for name in rows:
        assert index.conversation(name) == fresh.conversation(name)
    assert index.one("SELECT any_value(tags) AS t FROM runs WHERE tags != []")["t"] == ["late"]
    found = listing(index, MultiDict(q="magnet nothing-has-this"))
    assert found["total"] == 0
    index.close()
    assert [file.suffix for file in files(tmp_path)] == [".duckdb"]
    assert files(tmp_path)[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("typed", only("latest".__eq__, ["run", "./run", "../{}/run", "latest"]))
def test_a_run_is_known_however_its_folder_is_typed(
    typed: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From where it lies, from elsewhere, by a link: the process that makes the index has the whole
    path, and a folder as it is typed has others."""
    talks = [(n, 0, RIGHT, {"conversation_id": f"of-the-child-{n}"}) for n in range(3)]
    make(run.path / "evals" / "child", QUESTIONS, talks, {"rules": lambda k: 8.0})
    monkeypatch.chdir(tmp_path)
    Path("latest").symlink_to("run")
    path = Path(typed.format(tmp_path.name))
    growing = Growing(partial(members, [path]))
    until(lambda: pulse(growing)["first"] is None)
    assert growing.index.kept is not None, "taken from the file, not made once more in memory"
    assert growing.index.total == 6
    growing.close()
    for number, other in ((3, path), (4, run.path)):
        again = Growing(partial(members, [other]))
        assert (again.partial, again.index.total) == (None, 3 + number)
        assert again.index.conversation("of-the-child-1")[0].path.name == "child"
        said(run, number, RIGHT)
        until(lambda: pulse(again)["version"] > 1)  # noqa: B023 - done before the next
        assert again.index.total == 4 + number
        assert again.index.kept is not None
        again.close()


def test_what_the_runs_are_no_longer_is_not_believed(tmp_path: Path, run: Run) -> None:
    """Files written anew, other questions, other places, other users: made again, or not found."""
    kept.make([run])
    lines = run.conversations_file.read_bytes().splitlines(keepends=True)
    run.conversations_file.write_bytes(b"".join(lines[:2]))
    assert kept.opened([run]) is None
    assert files(tmp_path) == []
    kept.make([run])
    (run.path / "judges" / "more.json").write_text("{}")
    assert kept.opened([run]) is None
    (run.path / "judges" / "more.json").unlink()
    kept.make([run])
    (file,) = files(tmp_path)
    shutil.copytree(run.path, tmp_path / "copy")
    assert kept.opened([Run.open(tmp_path / "copy")]) is None
    file.chmod(0o666)
    assert kept.opened([run]) is None, "anybody could have written it"
    file.chmod(0o600)
    shutil.copy(file, run.path / file.name)
    file.write_bytes(b"no database")
    assert kept.opened([run]) is None, "nor one that lies in the run"


@pytest.mark.exhaustive
def test_first_conversations_are_shown_until_all_are_read(look: Looked, run: Run) -> None:
    """The page says that they are not all, opens one, and goes over to the whole by itself; the
    next start has it at once."""
    made = kept.Maker.running
    hold = Path(run.path.parent / "hold")
    hold.touch()

    class Held(kept.Maker):
        running = property(lambda self: hold.exists() or made.fget(self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "Maker", Held)
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
    again = Growing(lambda: [run])
    assert (again.partial, again.index.total) == (None, 3)
    again.close()


def test_damaged_records_are_told_and_read_once_they_are_mended(run: Run) -> None:
    whole = run.conversations_file.read_bytes()
    run.conversations_file.write_bytes(whole + b'{"key": 5}\n')
    growing = Growing(lambda: [run])
    until(lambda: pulse(growing)["problem"] is not None)
    found = pulse(growing)
    assert "conversations.jsonl:4" in found["problem"]
    assert (found["first"], growing.index.total) == (2, 2)
    run.conversations_file.write_bytes(whole)
    until(lambda: pulse(growing)["first"] is None)
    assert growing.index.total == 3
    growing.close()


def test_where_nothing_can_be_kept_it_is_made_in_memory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv(CACHE, str(tmp_path / "no-folder"))
    told: list[str] = []
    growing = Growing(lambda: [run], told.append)
    until(lambda: pulse(growing)["first"] is None)
    assert growing.index.total == 3
    assert growing.index.kept is None
    assert any(f"could be kept in {tmp_path / 'no-folder' / 'view'}:" in line for line in told)
    growing.close()


def test_a_viewer_that_ends_takes_its_process_along(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is amid its work, however long it takes to look."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(kept.sys, "executable", str(slow))
    growing = Growing(lambda: [run])
    maker = growing._maker
    assert maker is not None
    assert maker.running
    maker._file.parent.mkdir(parents=True, exist_ok=True)
    maker._file.touch()
    growing.close()
    assert not maker.running
    assert files(tmp_path) == []


HEAVY = "SELECT len(list(n)) AS n FROM range(3000000) t(n)"
"""Holds 24 MB at once, which DuckDB cannot put into temporary files."""


@pytest.fixture
def narrow(run: Run, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The kept index, with too little memory for HEAVY."""
    monkeypatch.setattr(kept, "ASKED", Room(0, 16))
    kept.make([run])
    index = kept.opened([run])
    assert index is not None
    return index


def test_a_question_that_needs_more_memory_gets_it(run: Run, narrow: Index) -> None:
    """And what searches had found is still there, for a page may be about to ask it."""
    light = listing(narrow, MultiDict(q="magnets"))
    assert light["total"] == 3
    found = narrow.having(["magnets"], "contains(text, ?)", ["magnets"])
    assert narrow.room == Room(0, 16)
    assert narrow.one(HEAVY) == {"n": 3_000_000}
    assert narrow.room == OFTEN
    assert narrow.one(f"SELECT count(*) AS n FROM {found}") == {"n": 3}
    assert listing(narrow, MultiDict(q="magnets")) == light
    limits = narrow.one("SELECT current_setting('lock_configuration')::VARCHAR AS locked")
    assert limits == {"locked": "true"}, "no less guarded than before"
    said(run, 3, RIGHT)
    assert absorb(narrow)
    assert listing(narrow, MultiDict(q="magnets"))["total"] == 4
    narrow.close()


def test_what_needs_more_than_there_is_at_all_is_refused(
    narrow: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convbench.view.index.OFTEN", Room(0, 20))
    with pytest.raises(QueryError, match="needs more memory than it may have; ask a narrower"):
        narrow.ask(HEAVY)
    assert narrow.total == 3, "others are answered as before"
    narrow.close()


def test_a_run_that_grows_is_taken_in_with_all_the_memory(run: Run, narrow: Index) -> None:
    said(run, 3, RIGHT)
    assert absorb(narrow)
    assert (narrow.total, narrow.room) == (4, OFTEN)
    narrow.close()


def test_a_file_that_cannot_be_opened_again_is_made_anew(
    run: Run, narrow: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another viewer took it between two looks, say: the question is refused, pages come back."""
    narrow.close()
    growing = Growing(lambda: [run])
    with monkeypatch.context() as patch:

        def taken(*_: object, **__: object) -> None:
            raise duckdb.IOException("Could not set lock on file")

        patch.setattr("convbench.view.index.tables.reopen", taken)
        for question in (HEAVY, "SELECT 1"):
            with pytest.raises(QueryError, match="made anew; ask once more in a moment"):
                growing.index.ask(question)
    until(lambda: pulse(growing)["version"] > 1)
    assert growing.index.total == 3
    assert growing.index.one(HEAVY) == {"n": 3_000_000}
    growing.close()
