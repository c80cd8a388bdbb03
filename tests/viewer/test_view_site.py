"""The viewer as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from convbench.errors import RunError
from convbench.viewer import ViewIndex, site, write_site
from convbench.viewer import library as opening
from convbench.viewer.library import index_runs
from tests.helpers.typed import Typist
from tests.helpers.viewer_runs import world


def write(run: Path, folder: Path) -> int:
    """Write the site of a run."""
    return write_site(index_runs([run], lambda text: None), folder, lambda text: None)


def test_every_conversation_is_in_a_shard_where_its_row_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With shards of three talks and seven rows."""
    monkeypatch.setattr(site, "TALKS", 3)
    monkeypatch.setattr(site, "ROWS", 7)
    world(tmp_path / "run")
    write(tmp_path / "run", tmp_path / "site")
    data = tmp_path / "site" / "data"
    shards = [orjson.loads((data / "rows" / f"{k}.json").read_bytes()) for k in range(3)]
    names = [name for shard in shards for name in shard["conversation_id"]]
    assert len(set(names)) == 20
    assert [n for shard in shards for n in shard["n"]] == list(range(20))
    for n, name in enumerate(names):
        talk = orjson.loads((data / "talks" / f"{n // 3}.json").read_bytes())[n % 3]
        assert talk["row"]["conversation_id"] == name
        prompts = orjson.loads((data / "prompts" / f"{n // 3}.json").read_bytes())[n % 3]
        assert set(prompts) == {str(t["index"]) for t in talk["turns"] if t["asked"]}


def test_site_says_nothing_of_this_machine(tmp_path: Path) -> None:
    world(tmp_path / "run")
    count = write(tmp_path / "run", tmp_path / "site")
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert count == len(files)
    assert [path for path in files if str(tmp_path).encode() in path.read_bytes()] == []
    assert 'data-source="files"' in (tmp_path / "site" / "index.html").read_text()


def test_images_come_along_and_other_files_do_not(tmp_path: Path) -> None:
    world(tmp_path / "run")
    for kind, name in [("media", "a.png"), ("media", "b.html"), ("reports", "radar.png")]:
        (tmp_path / "run" / kind).mkdir(exist_ok=True)
        (tmp_path / "run" / kind / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    write(tmp_path / "run", tmp_path / "site")
    assert (tmp_path / "site" / "media" / "0" / "a.png").exists()
    assert not (tmp_path / "site" / "media" / "0" / "b.html").exists()
    assert (tmp_path / "site" / "reports" / "0" / "radar.png").exists()


def test_only_an_earlier_site_is_replaced(tmp_path: Path) -> None:
    world(tmp_path / "run")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="found other files"):
        write(tmp_path / "run", mine)
    assert (mine / "thesis.tex").exists()
    assert write(tmp_path / "run", tmp_path / "site") == write(tmp_path / "run", tmp_path / "site")


def test_the_index_of_a_site_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the library behind it may warn of what it still holds as the command ends."""
    made: list[ViewIndex] = []
    opened = opening.index_runs

    def index_runs(*args: Any) -> ViewIndex:
        made.append(opened(*args))
        return made[-1]

    monkeypatch.setattr(opening, "index_runs", index_runs)
    world(tmp_path / "run")
    said = Typist(capfd, monkeypatch)(
        "view", str(tmp_path / "run"), "--static", str(tmp_path / "site")
    )
    assert (said.code, "20 conversations" in said.out) == (0, True)
    with pytest.raises(duckdb.ConnectionException, match="closed"):
        made[0].connection.execute("SELECT 1")
