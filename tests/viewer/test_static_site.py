"""What a browser runs does not get into a site, and a question has its limits.

`view --static` puts a run, perhaps a stranger's, under its owner's name: pictures made of pixels
come along, told by their content. `query` and the viewer's free condition end within seconds and
a stated memory.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from convbench.errors import QueryError
from convbench.store import Run, tables
from convbench.store.limits import as_keyboard_interrupt, limit_query
from convbench.store.query import run_query
from convbench.viewer import filters, index, write_site
from convbench.viewer.index import ViewIndex
from convbench.viewer.library import index_runs
from tests.helpers.cli import COMMAND, environment, finish, start
from tests.helpers.runs import write_run
from tests.helpers.viewer_runs import world
from tests.helpers.viewing import Viewer
from tests.support.exhaustive import only

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script></svg>"
GOOD = {
    "a.png": PNG, "b.jpg": b"\xff\xd8\xff\xe0" + bytes(20), "c.gif": b"GIF89a" + bytes(20),
    "d.webp": b"RIFF\x00\x00\x00\x00WEBPVP8 ", "e.jpeg": PNG,
}  # fmt: skip
ACTIVE = {
    "x.svg": SVG, "x.html": b"<script>alert(1)</script>", "x.js": b"alert(1)", "x.xml": SVG,
    "x.svgz": b"\x1f\x8b", "x.pdf": b"%PDF-1.7", "x.htm": b"<p>", "x.css": b"*{}", "x.wasm": b"\0",
    "svg.png": SVG, "html.png": b"<!doctype html><script>alert(1)</script>", "js.gif": b"alert(1)",
    "late.jpg": b" " * 8 + PNG, "empty.png": b"", "no-ending": PNG, ".hidden.png": PNG,
    "two.png.html": PNG, "upper.PNG.svg": PNG, "swf.png": b"CWS\x09", "riff.webp": b"RIFF0000WAVE",
    "space name.png": PNG, "p\u0430ge.png": PNG,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose folders of pictures hold everything."""
    path = tmp_path_factory.mktemp("active") / "run"
    world(path)
    for kind in ("media", "reports"):
        (path / kind).mkdir(exist_ok=True)
        for name, data in {**GOOD, **ACTIVE}.items():
            (path / kind / name).write_bytes(data)
        (path.parent / "private.png").write_bytes(PNG)
        (path / kind / "linked.png").symlink_to(path.parent / "private.png")
    return path


@pytest.fixture(scope="module")
def site(folder: Path) -> tuple[Path, list[str]]:
    """The static site of it, and what was said."""
    said: list[str] = []
    place = folder.parent / "site"
    write_site(index_runs([folder], lambda text: None), place, said.append)
    return place, said


@pytest.mark.parametrize("kind", ["media", "reports"])
@pytest.mark.parametrize("name", [*ACTIVE, "linked.png"])
def test_nothing_active_is_copied(name: str, kind: str, site: tuple[Path, list[str]]) -> None:
    """By name or by content; no link is followed."""
    assert not (site[0] / kind / "0" / name).exists()
    assert not list(site[0].glob(f"**/{name}"))


@pytest.mark.parametrize("name", GOOD)
def test_pictures_come_along(name: str, site: tuple[Path, list[str]]) -> None:
    """Whatever they are called, if they end like a picture."""
    for kind in ("media", "reports"):
        assert (site[0] / kind / "0" / name).read_bytes() == GOOD[name]


def test_the_site_s_files_are_of_known_kinds(site: tuple[Path, list[str]]) -> None:
    """Our own page, data, pixels; and what was left out is said."""
    place, said = site
    others = {path.suffix for path in place.rglob("*") if path.is_file() and (
        path.relative_to(place).parts[0] not in ("assets", "index.html"))}  # fmt: skip
    assert others <= {".json", ".png", ".jpg", ".jpeg", ".gif", ".webp"}
    assert any(f"{len(ACTIVE) + 1} files omitted" in text for text in said)
    shown = (place / "data" / "overview.json").read_text()
    assert "reports/0/a.png" in shown
    assert ".svg" not in shown


def test_a_linked_folder_is_not_copied(tmp_path: Path) -> None:
    """`media` itself may be a link."""
    world(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "holiday.png").write_bytes(PNG)
    (tmp_path / "run" / "media").symlink_to(tmp_path / "mine")
    write_site(index_runs([tmp_path / "run"], lambda text: None), tmp_path / "site", print)
    assert not list((tmp_path / "site").rglob("holiday.png"))


@pytest.mark.parametrize("name", [*ACTIVE, "linked.png"])
def test_the_live_viewer_serves_no_active_media(
    name: str, viewer: Viewer, folder: Path
) -> None:  # fmt: skip
    """The same, by its address."""
    from urllib.parse import quote

    assert viewer.ask(f"/media/0/{quote(name)}")[0].status == 404


@pytest.mark.parametrize(("name", "kind"), [
    ("a.png", "image/png"), ("b.jpg", "image/jpeg"), ("c.gif", "image/gif"),
    ("d.webp", "image/webp"), ("e.jpeg", "image/png"),
])  # fmt: skip
def test_the_live_viewer_names_the_kind_by_content(
    name: str, kind: str, viewer: Viewer, folder: Path
) -> None:  # fmt: skip
    """And no browser guesses another."""
    response, _ = viewer.ask(f"/media/0/{name}")
    assert response.status == 200
    assert response.headers["Content-Type"] == kind
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response.headers["Content-Security-Policy"]


LONG = {
    "count": "SELECT count(*) FROM range(100000000000)",
    "rows": "SELECT i FROM range(100000000000) t(i)",
    "cross": "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range <> b.range",
    "endless": "WITH RECURSIVE r AS (SELECT 1 a UNION ALL SELECT 1 FROM r) SELECT max(a) FROM r",
    "list": "SELECT list(i) FROM range(100000000000) t(i)",
    "text": "SELECT string_agg(repeat('x', 1000000), '') FROM range(1000000)",
    "value": "SELECT repeat('x', 4000000000)",
    "sorted": "SELECT list_sort(range(1000000000))",
}  # fmt: skip


@pytest.mark.parametrize("name", only(("count",).__contains__, LONG))
def test_a_query_ends(name: str, tmp_path: Path) -> None:
    """In one line, after its seconds or its memory; the machine gives no more than is stated.

    The process may have 8 GiB of address space: what it asks for beyond fails there and then."""
    write_run(tmp_path / "r", count=1)
    limited = ["bash", "-c", 'ulimit -v 8388608; exec "$@"', "-", *COMMAND]
    command = [*limited, "query", LONG[name], "--run", "r", "--timeout", "1"]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100
    )
    errors = [line for line in process.stderr.splitlines() if line.strip()]
    assert process.returncode == 1, process.stderr
    assert len(errors) == 1
    assert "took longer than 1 s" in errors[0] or "needs more than 2,048 MiB" in errors[0]


def test_a_query_that_cannot_be_interrupted_ends(tmp_path: Path) -> None:
    """One huge value after the other, within one block of rows: the program ends itself."""
    write_run(tmp_path / "r", count=1)
    code = (
        "import sys; from convbench.store import limits; limits.GRACE_S = 0.5;"
        "sys.argv = ['convbench', 'query', \"SELECT lpad('x', 300000000, 'y') FROM range(200)\","
        " '--run', 'r', '--timeout', '0.5']; from convbench.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "0.5 s" in done.stderr or "MiB" in done.stderr


def test_limits_leave_ordinary_questions_alone(tmp_path: Path) -> None:
    """And the process is what it was, after a question that failed too."""
    import resource

    run = write_run(tmp_path / "r", count=3)
    before = resource.getrlimit(resource.RLIMIT_AS)
    for _ in range(2):
        assert run_query(
            "SELECT count(*) FROM conversations", [run], exit_on_timeout=True
        ).rows == [(6,)]
        with pytest.raises(QueryError, match=r"took longer than 0\.2 s"):
            run_query(LONG["count"], [run], seconds=0.2, exit_on_timeout=True)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_memory_is_no_setting_of_a_query(tmp_path: Path) -> None:
    """Nor the temporary folder: the configuration is locked."""
    run = write_run(tmp_path / "r", count=1)
    connection = tables.connect_runs([run])
    ((memory, place),) = connection.execute(
        "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    ).fetchall()
    assert memory.startswith("2.")
    assert place == ""
    for name in (
        "memory_limit = '90GB'",
        "temp_directory = '/tmp'",
        "max_temp_directory_size='1TB'",
    ):
        with pytest.raises(QueryError):
            run_query(f"SET {name}", [run])


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> ViewIndex:
    """An index to ask."""
    path = tmp_path_factory.mktemp("index") / "run"
    world(path)
    return index_runs([path], lambda text: None)


@pytest.mark.parametrize("clause", [
    "(SELECT max(length(repeat('x', n))) FROM conversations) > 1",
    "length(repeat(text, 1000000000)) > 1",
    "len(range(1000000000)) > 1", "len(list_sort(generate_series(1, 1000000000))) > 1",
    "lpad(text, 1000000000, 'x') = ''", "printf('%1000000000d', n) = ''",
    "format('{:>1000000000}', text) = ''", "length(regexp_replace(text, '.', text, 'g')) > 0",
    "length(replace(text, 'a', text)) > 1", "list_reduce([1], lambda x, y: x) = 1",
    "LENGTH(\"repeat\"(text, 1000000)) > 1", "text.repeat(1000000000) = ''",
    " OR ".join(["words > 1"] * 1000),
])  # fmt: skip
def test_a_free_condition_is_small(clause: str, asked: ViewIndex) -> None:
    """Refused before it runs: what makes long values could not be interrupted."""
    with pytest.raises(QueryError, match="without functions that produce long values"):
        filters.free_condition(asked, clause)


@pytest.mark.parametrize("clause", [
    "words > 200 AND correct", "text LIKE '%iron%'", "len(flags) > 0",
    "temperature BETWEEN 0 AND 1",
    "policy IN ('a', 'b') OR answer IS NULL", "coalesce(cost_usd, 0) < round(0.5, 1)",
    "regexp_matches(text, 'ir.n')", "n IN (SELECT range FROM range(100))",
    "length(text) > 20 AND lower(task) = 'demo'",
])  # fmt: skip
def test_ordinary_conditions_pass(clause: str, asked: ViewIndex) -> None:
    assert asked.query_rows(filters.free_condition(asked, clause)) is not None


@pytest.mark.parametrize("clause", [
    "(SELECT count(*) FROM range(100000000000)) > 1", "n IN (SELECT range FROM range(1000000000))",
    "(SELECT len(list(range)) FROM range(10000000000)) > n",
    "n = (WITH RECURSIVE r AS (SELECT 1 a UNION ALL SELECT 1 FROM r) SELECT max(a) FROM r)",
])  # fmt: skip
def test_a_condition_s_query_ends(
    clause: str, asked: ViewIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its seconds or its memory; the viewer goes on."""
    monkeypatch.setattr(index, "LONGEST_S", 0.5)
    with pytest.raises(QueryError, match=r"took longer than 0\.5 s|needs more than 2,048 MiB"):
        asked.query_rows(filters.free_condition(asked, clause))
    assert asked.total == 20


def test_a_question_to_the_index_ends(asked: ViewIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its seconds, and the next one is answered."""
    with monkeypatch.context() as patch:
        patch.setattr(index, "LONGEST_S", 0.3)
        with pytest.raises(QueryError, match=r"took longer than 0\.3 s; narrow the query"):
            asked.query_rows(LONG["count"])
    assert asked.query_row("SELECT count(*) AS n FROM conversations")["n"]


def test_ctrl_c_in_a_query_is_an_interruption(tmp_path: Path) -> None:
    """Exit code 130 and no traceback."""
    write_run(tmp_path / "r", count=1)
    process = start(tmp_path, "query", LONG["count"], "--run", "r")
    _until_it_asks(process)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert "Traceback" not in done.err


def _until_it_asks(process: subprocess.Popen[str]) -> None:
    """Wait until the process has computed for longer than its start takes, as only DuckDB does."""
    ticks = os.sysconf("SC_CLK_TCK")
    while process.poll() is None:
        threads = Path(f"/proc/{process.pid}/task")
        used = [int(t.joinpath("stat").read_text().rpartition(")")[2].split()[11])
                for t in threads.iterdir()]  # fmt: skip
        if len(used) > 1 and sum(used) > 2 * ticks:
            return
        time.sleep(0.05)


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="else"), as_keyboard_interrupt():
        raise RuntimeError("something else")
    with pytest.raises(KeyboardInterrupt), as_keyboard_interrupt():
        raise RuntimeError("Query interrupted")


def test_limits_hold_by_the_clock_of_one_question(tmp_path: Path) -> None:
    """A timer of a question that is answered does not end the next one."""
    connection = tables.connect_runs([write_run(tmp_path / "r", count=1)])
    for _ in range(3):
        with limit_query(connection, 2.0, "more"):
            connection.execute("SELECT 1").fetchall()
    time.sleep(2.1)
    assert connection.execute("SELECT count(*) FROM range(10000000)").fetchall() == [(10000000,)]
    assert Run.open(tmp_path / "r")
