"""What commands say where there is nothing, somebody, or one too few."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.hub.repo import UploadResult
from tests.helpers.cli import COMMAND, environment
from tests.helpers.typed import Typist


@pytest.fixture
def run(typist: Typist) -> Path:
    path = Path("runs/a")
    build = ("build", "demo", "--model", "scripted:policy", "--tasks", "8", "--run", str(path))
    assert typist(*build).code == 0
    assert typist("judge", "--judge", "rules", "--run", str(path)).code == 0
    return path


def test_what_nothing_is_called_is_no_task(typist: Typist, run: Path) -> None:
    said = typist("show", "abcdef12", "--run", str(run))
    assert said.err.startswith("error: abcdef12: found no spec, model or conversation of this name")


def test_a_dry_run_says_who_will_see_it_and_goes_on_alike(typist: Typist, run: Path) -> None:
    words = ("publish", "me/set", str(run), "--dry-run")
    said = typist(*words).out
    assert "open to        everybody (to you alone: --private)" in said
    assert "--private\n" not in said.partition("next:")[2]
    private = typist(*words, "--private", "--judge", "rules").out
    assert "open to        you alone" in private
    assert f"next: convbench publish me/set --run {run} --private --judge rules" in private

    more = typist(*words, "--public").out
    assert f"next: convbench publish me/set --run {run} --public" in more


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each repository that was uploaded is private."""
    found: list[bool] = []

    def upload(repo: str, folder: Path, *, private: bool) -> UploadResult:
        found.append(private)
        return UploadResult(repo, f"https://hub/{repo}", "c" * 40, created=True, changed=True)

    monkeypatch.setattr("convbench.hub.dataset.upload_folder", upload)
    return found


def test_what_is_made_public_unasked_is_said(typist: Typist, run: Path, sent: list[bool]) -> None:
    words = ("publish", "me/set", str(run))
    said = typist(*words)
    assert said.code == 0
    assert (
        "note: me/set: a new repository is open to everybody; to you alone: --private" in said.err
    )
    for flag in ("--private", "--public"):
        assert "open to everybody" not in typist(*words, flag).err
    assert sent == [False, True, False]


@pytest.mark.parametrize("words", [
    ("",), ("../x",), ("a/b/c",), ("me/set", "--run", "nosuch"), ("me/set", "--checkpoint", "no"),
])  # fmt: skip
def test_what_cannot_be_published_is_the_error_alone(
    typist: Typist, run: Path, sent: list[bool], words: tuple[str, ...]
) -> None:
    said = typist("publish", *words)
    assert said.code == 1
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["error"]
    assert sent == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("", 1)])
def test_a_terminal_is_asked_before_something_is_public(
    typist: Typist,
    run: Path,
    sent: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
) -> None:
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    said = typist("publish", "me/set", str(run))
    assert (said.code, sent) == (code, [False] * (code == 0)), said.err
    assert "open to everybody (without --private). Continue? [y/N]" in said.err
    assert ("nothing was sent" in said.err) == (code == 1)


def test_pictures_are_counted_without_what_lies_beside_them(typist: Typist, run: Path) -> None:
    pytest.importorskip("matplotlib")
    said = typist("report", str(run), "--split", "all", "--plots", "--out", "drawn")
    drawn = [path for path in Path("drawn").rglob("*") if path.suffix in (".png", ".svg", ".pdf")]
    assert drawn
    assert f"{len(drawn)} pictures in" in said.err


@pytest.mark.parametrize("said", ["echo", "ECHO"])
def test_a_policy_is_called_by_its_folder_in_any_case(typist: Typist, run: Path, said: str) -> None:
    typist("eval", "scripted:echo", "--name", "Echo", "--run", str(run))
    done = typist("report", str(run), "--baseline", said)
    assert done.code == 0, done.err
    named = typist("report", str(run), "--baseline", "Echo").out
    assert done.out == named.replace("--baseline Echo", f"--baseline {said}")
    wrong = typist("report", str(run), "--baseline", "nosuch")
    assert "found no such policy; expected one of Base, Echo" in wrong.err


def test_a_judge_that_is_not_found_is_named_with_where_it_lies(typist: Typist) -> None:
    for kind, text in (("tasks", "extends: demo\njudge: mine\n"),
                       ("judges", "extends: rules\ntitle: mine\n")):  # fmt: skip
        Path("own", kind).mkdir(parents=True)
        Path("own", kind, "mine.yaml").write_text(text)
    build = ("build", "mine", "--model", "scripted:policy", "--tasks", "4", "--run", "runs/a")
    said = typist(*build, "--specs", "own").out
    assert "next: convbench judge --judge mine --specs own" in said
    again = typist("build", "--run", "runs/a").out
    assert "next: convbench judge --specs DIR --judge mine   (DIR: where it lies)" in again


def test_a_reader_that_has_gone_is_no_mistake() -> None:
    """As with any program in a pipe: the code of SIGPIPE, and not a word."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "list"], stdout=write, stderr=subprocess.PIPE, env=environment(), check=False,
        timeout=120,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
