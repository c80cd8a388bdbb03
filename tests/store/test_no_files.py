"""What is no plain file, where one is expected: links, pipes, devices and holes. Nothing waits for
them, and nothing that is not ours is written, emptied or given another mode, kind or owner."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from convbench.engine.reply_cache import ReplyCache
from convbench.errors import NotRegularError, RunError
from convbench.learn.launch import write_recipe
from convbench.schema import ModelConfig
from convbench.schema.recipe import Recipe
from convbench.store import Run
from convbench.store.jsonl import Appender, write_atomic
from convbench.util.regular import open_lock, open_to_append, open_to_read
from tests.helpers import stages
from tests.helpers.runs import write_run
from tests.support.app import app

pytestmark = pytest.mark.timeout(60)
VICTIM = b'{"mine": 1}\nhalf a line'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    cast = {
        "assistant": ModelConfig(model="rule:tests.helpers.files:says"),
        "teacher": ModelConfig(model="script"),
    }
    return write_run(tmp_path / "run", cast=cast)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user's, elsewhere."""
    path = tmp_path / "mine.txt"
    path.write_bytes(VICTIM)
    path.chmod(0o604)
    return path


def device(path: Path, minor: int) -> Path:
    """Make a device of our own: 3 takes all (null), 7 nothing (full)."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.open("rb").close()
    except PermissionError:
        pytest.skip("devices are made by root alone")
    path.chmod(0o666)
    return path


def typed(*words: str | Path) -> tuple[int, str]:
    """Return (exit code, what was said) of a command."""
    found = CliRunner().invoke(app, [str(word) for word in words])
    return found.exit_code, found.output + str(found.exception or "")


LOCKED = {
    "judge": ("judge", "--judge", "rules", "--quiet", "--run"),
    "build": ("build", "--quiet", "--run"),
    "publish": ("publish", "a/b", "--dry-run", "--run"),
}


@pytest.mark.parametrize("command", LOCKED)
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_another_file_is_not_emptied(
    command: str, link: object, run: Run, victim: Path
) -> None:
    (run.path / ".lock").unlink(missing_ok=True)
    link(victim, run.path / ".lock")  # type: ignore[operator]
    code, said = typed(*LOCKED[command], run.path)
    assert code == 1
    assert ".lock: cannot be written: found a" in said
    assert victim.read_bytes() == VICTIM


@pytest.mark.parametrize("name", ["gold/.lock", ".labels.lock"])
def test_locks_of_labels_are_not_emptied_either(name: str, run: Run, victim: Path) -> None:
    from convbench.store.locks import folder_lock

    (run.path / name).parent.mkdir(exist_ok=True)
    os.link(victim, run.path / name)
    place = run.path / name
    with pytest.raises(RunError, match="found a file with several hard links"), \
            folder_lock(place.parent, "keeping labels", name=place.name, wait_s=1):  # fmt: skip
        pass
    assert victim.read_bytes() == VICTIM


def test_nothing_is_appended_or_written_through_a_link(run: Run, victim: Path) -> None:
    """The last line of a log is cut where it is torn: not of a file elsewhere."""
    for name in ("verdicts.jsonl", "calls.jsonl", "new.json"):
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).symlink_to(victim)
    with pytest.raises(RunError, match="found a link; expected a regular file"):
        Appender(run.path / "calls.jsonl").write(b"{}")
    code, said = typed("judge", "--judge", "rules", "--quiet", "--run", run.path)
    assert (code, "verdicts.jsonl" in said) == (1, True)
    (run.path / f".new.json.{os.getpid()}.tmp").symlink_to(victim)
    write_atomic(run.path / "new.json", b"{}")
    assert victim.read_bytes() == VICTIM


def test_a_recipe_replaces_a_link(run: Run, victim: Path) -> None:
    from convbench import catalog

    folder = run.checkpoints_folder / "refit"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").symlink_to(victim)
    recipe = catalog.load_spec(Recipe, "recipes", "refit").model_copy(update={"run": "../.."})
    write_recipe(folder, recipe)
    assert victim.read_bytes() == VICTIM
    assert not (folder / "recipe.yaml").is_symlink()


def kinds(folder: Path) -> dict[str, Path]:
    """Make a pipe, a folder and a link to the pipe."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "pipe")
    return {name: folder / name for name in ("pipe", "folder", "link")}


@pytest.mark.parametrize("opened", [open_to_read, open_to_append, open_lock])
def test_only_a_plain_file_is_opened(opened: object, tmp_path: Path) -> None:
    for path in kinds(tmp_path).values():
        with pytest.raises(NotRegularError, match="expected a regular file") as found:
            opened(path)  # type: ignore[operator]
        assert isinstance(found.value, OSError)


def test_a_file_of_holes_is_told_from_a_long_one(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with path.open("wb") as file:
        file.write(b"{}\n" * 1000)
        file.truncate(5 << 30)
    with pytest.raises(NotRegularError, match="a sparse file, 5,368,709,120 bytes long"):
        open_to_read(path)
    os.truncate(path, 3000)
    with open_to_read(path) as found:
        assert len(found.read()) == 3000


def test_a_cache_is_a_plain_file_and_keeps_its_mode(tmp_path: Path) -> None:
    """As root a device would be closed to everybody else."""
    for path in [*kinds(tmp_path).values(), device(tmp_path / "null", 3)]:
        path.chmod(0o777)
        with pytest.raises(RunError, match="cannot be used as a cache of replies: found a"):
            ReplyCache(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o777, path
    mine = tmp_path / "mine.db"
    mine.touch(0o640)
    ReplyCache(mine).close()
    assert stat.S_IMODE(mine.stat().st_mode) == 0o640


def test_specs_plugins_and_settings_are_plain_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "convbench.toml")
    os.mkfifo(tmp_path / "task.yaml")
    os.mkfifo(tmp_path / "labels.jsonl")
    for words in (
        ("show", tmp_path / "task.yaml"),
        ("show", "demo", "--plugin", tmp_path / "task.yaml"),
        ("judge", "--judge", f"human:{tmp_path}/labels.jsonl", "--run", run.path),
        ("import", tmp_path / "labels.jsonl", "--run", "new"),
    ):
        code, said = typed(*words)
        assert code == 1, words
        assert "found a pipe" in said or "found no such file" in said, words
    from convbench.commands._config import default_map
    from convbench.errors import SpecError

    with pytest.raises(SpecError, match=r"convbench\.toml: cannot be read: found a pipe"):
        default_map()


ASK = ("query", "select 1 as one", "--format", "csv")


def test_a_result_is_written_into_what_the_user_named(run: Run, victim: Path) -> None:
    """Its link is followed, and mode and owner are as they were."""
    link = victim.with_name("link.csv")
    link.symlink_to(victim)
    assert typed(*ASK, "--run", run.path, "--out", link)[0] == 0
    assert link.is_symlink()
    assert victim.read_text() == "one\n1\n"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o604
    nowhere = victim.with_name("nowhere.csv")
    nowhere.symlink_to(victim.with_name("made.csv"))
    assert typed(*ASK, "--run", run.path, "--out", nowhere)[0] == 0
    assert nowhere.is_symlink()
    assert victim.with_name("made.csv").read_text() == "one\n1\n"


def test_a_result_goes_into_a_pipe(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    assert typed(*ASK, "--run", run.path, "--out", tmp_path / "pipe")[0] == 0
    reader.join(20)
    assert got == ["one\n1\n"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_full_device_stays_one(run: Run, tmp_path: Path) -> None:
    full = device(tmp_path / "full", 7)
    code, said = typed(*ASK, "--run", run.path, "--out", full)
    assert (code, "the disk is full" in said) == (1, True)
    assert full.is_char_device()
    null = device(tmp_path / "null", 3)
    assert typed(*ASK, "--run", run.path, "--out", null)[0] == 0
    assert null.is_char_device()


@pytest.mark.parametrize(
    ("words", "file"),
    [(("export", "--to", "openai"), "train.jsonl"),
     (("report", "--split", "all", "--format", "csv"), "report.csv")],
)  # fmt: skip
def test_every_out_follows_links_and_keeps_modes(
    words: tuple[str, ...], file: str, run: Run, victim: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / file).symlink_to(victim)
    named = (run.path,) if words[0] == "report" else ("--run", run.path)
    code, said = typed(*words, *named, "--out", place)
    assert code == 0, said
    assert (place / file).is_symlink()
    assert victim.read_bytes() != VICTIM
    assert stat.S_IMODE(victim.stat().st_mode) == 0o604


@pytest.mark.parametrize("words", [("export", "--to", "openai"), ("report", "--format", "html")])
def test_a_link_that_came_with_a_run_leads_nowhere(
    words: tuple[str, ...], run: Run, victim: Path
) -> None:
    place = run.path / "export" / "openai" / "train.jsonl"
    if words[0] == "report":
        place = run.path / "reports" / "report.html"
    place.parent.mkdir(parents=True)
    place.symlink_to(victim)
    named = (run.path, "--split", "all", "--json") if words[0] == "report" else ("--run", run.path)
    code, said = typed(*words, *named)
    assert code == 0, said
    assert victim.read_bytes() == VICTIM
    assert not place.is_symlink()


def test_an_image_that_is_a_pipe_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    from convbench.errors import FatalModelError
    from convbench.models.openai import wire_messages
    from convbench.schema import ImagePart

    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(FatalModelError, match="found a pipe"):
        wire_messages([{"role": "user", "content": (ImagePart(file="x.png"),)}], tmp_path)


def test_a_published_folder_holds_no_pipe(run: Run) -> None:
    shutil.rmtree(run.path / "publish", ignore_errors=True)
    os.mkfifo(run.path / "comparisons.jsonl")
    found = stages.publish(run, "me/set")
    assert all(path.is_dir() or path.is_file() for path in found.folder.rglob("*"))
