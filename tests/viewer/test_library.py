"""The picker: a folder of runs, of which one or several are opened."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from convbench.errors import RunError
from convbench.store.jsonl import Appender
from convbench.viewer import GrowingIndex, Library
from convbench.viewer.library import library_or_index, open_members
from tests.helpers.viewer_runs import RIGHT, WRONG, make, question, talk
from tests.helpers.viewing import Looked, viewing

ODD = "a,b +ü'<i>%2c"
"""A name that an address must quote."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of two conversations each, one with a child, one of an odd name."""
    root = tmp_path_factory.mktemp("library") / "runs"
    asked = [question(n) for n in range(2)]
    for name, said in (("first", RIGHT), ("second", WRONG), (ODD, RIGHT)):
        run = make(root / name, asked, [(n, 0, said, {}) for n in range(2)],
                   {"rules": lambda k: 8.0})  # fmt: skip
        if name == "first":
            make(run.path / "evals" / "tuned", asked, [(0, 0, WRONG, {})], {}, "local:tuned",
                 parent=run.manifest.id)  # fmt: skip
    (root / "notes").mkdir()
    (root / "outside").symlink_to(root.parent, target_is_directory=True)
    return root


def test_what_is_shown_without_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs: to choose from. One: that one, live. None: one line that says so."""
    monkeypatch.chdir(folder.parent)
    assert isinstance(library_or_index((), print), Library)
    assert isinstance(library_or_index((folder,), print), Library)
    assert isinstance(library_or_index((folder / "first",), print), GrowingIndex)
    both = library_or_index((folder / "first", folder / "second"), lambda text: None)
    assert isinstance(both, GrowingIndex)
    assert both.index.total == 5
    assert len(open_members([folder])) == 4
    monkeypatch.chdir(folder / "notes")
    with pytest.raises(RunError, match="found no run here"):
        library_or_index((), print)


def test_rows_tell_what_a_run_is_and_holds(folder: Path) -> None:
    with viewing(folder) as viewer:
        rows = viewer.json("/api/runs")
        assert {row["name"] for row in rows} == {"first", "second", ODD}
        found = viewer.json("/api/runs/first")
        assert (found["conversations"], found["judges"], found["evals"], found["planned"]) == (
            2, ["rules"], 1, 4,
        )  # fmt: skip
        assert found["usd"] == pytest.approx(0.006)
        opened = viewer.json(f"/open/{quote(ODD, safe='')},second/api/overview")
        assert opened["totals"]["conversations"] == 4
        assert viewer.json("/open/first/api/versus")["rows"][0]["lost"] == 1


def test_a_run_that_grows_is_not_counted_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page looks every four seconds. What it gets says of when it is, so that it asks again."""
    monkeypatch.setattr("convbench.viewer.library.EASE", 1e9)
    run = make(tmp_path / "run", [question(n) for n in range(2)], [(0, 0, RIGHT, {})], {})
    library = Library(tmp_path)
    before = library.run_counts("run")
    assert (before["conversations"], before["changed"]) == (1, library.run_rows()[0]["changed"])
    with Appender(run.conversations_file) as file:
        file.write(talk(run, question(1), 0, RIGHT).model_dump_json().encode())
    assert library.run_counts("run") == before
    assert library.run_rows()[0]["changed"] > before["changed"]
    library._counted.clear()
    after = library.run_counts("run")
    assert (after["conversations"], after["changed"]) == (2, library.run_rows()[0]["changed"])


@pytest.mark.parametrize(
    "path",
    ["/open/nope/api/overview", "/open/../api/overview", "/open/%2e%2e/api/list",
     "/open/outside/api/list", "/open/first%2Fevals%2Ftuned/api/list", "/api/runs/%2e%2e",
     "/open/first/assets/..%2fserver.py", "/open/first/media/0/..%2frun.json"],
)  # fmt: skip
def test_no_other_folder_can_be_opened(folder: Path, path: str) -> None:
    with viewing(folder) as viewer:
        assert viewer.ask(path)[0].status == 404
        assert viewer.ask("/open/first/api/list", cookie=False)[0].status == 403


def test_runs_are_chosen_opened_and_left_again(look: Looked, folder: Path) -> None:
    with viewing(folder) as viewer:
        page = look.open(viewer.page())
        row = page.locator("tr", has_text="second")
        row.get_by_text("rules").wait_for()
        page.get_by_role("searchbox").fill("second")
        assert page.locator("tbody tr:visible").count() == 1
        page.get_by_role("searchbox").fill("")
        for name in ("first", ODD):
            page.get_by_label(f"Choose {name}").check()
        page.get_by_role("button", name="Open 2 together").click()
        page.locator(".totals strong", has_text="5").first.wait_for()
        assert "token" not in page.url
        page.get_by_role("link", name="Conversations").first.click()
        page.locator("table.rows tbody tr").first.wait_for()
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_role("link", name="second").click()
        page.locator(".totals strong", has_text="2").first.wait_for()
