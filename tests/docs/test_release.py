"""The release script on a scratch repository: what it refuses, and what a release leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.release import ROOT, release

PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "convbench"
requires-python = ">=3.11"
dynamic = ["version"]
[project.scripts]
convbench = "convbench.__main__:main"
[tool.hatch.version]
path = "convbench/__init__.py"
[tool.hatch.build]
only-include = ["convbench"]
"""
FILES = {
    "pyproject.toml": PYPROJECT,
    "convbench/__init__.py": '__version__ = "1.2.0"\n',
    "convbench/__main__.py": (
        'from convbench import __version__\n\n\ndef main():\n    print("convbench", __version__)\n'
    ),
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2026-11-27)\n\n## 1.1.0 (2026-10-01)\n",
    "Makefile": "check:\n\t@echo checked >> log\ntest:\n\t@echo tested >> log\n",
    release.FORMAT_FILE: json.dumps({"format": 1, "sha256": "aa"}),
    ".gitignore": "/dist/\n/log\n",
}


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(root: Path, **texts: str) -> None:
    """Write files and commit them."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "change")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    write(folder, **FILES)
    git(folder, "tag", "v1.1.0")
    return folder


def refusal(root: Path, *, dry_run: bool = True) -> str:
    with pytest.raises(release.Refusal) as caught:
        release.make_release(root, dry_run=dry_run)
    assert git(root, "tag", "--list") in ("v1.1.0", "v1.1.0\nv1.2.0")
    return str(caught.value)


def change(name: str, text: str) -> Callable[[Path], None]:
    return lambda root: write(root, **{name: text})


def leave_uncommitted(root: Path) -> None:
    (root / "notes.txt").write_text("x")


def tag_version(root: Path) -> None:
    git(root, "tag", "v1.2.0")


OTHER = json.dumps({"format": 1, "sha256": "bb"})
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "dirty": (leave_uncommitted, "the tree is dirty: 1 files, the first is notes.txt"),
    "tagged": (tag_version, "the tag v1.2.0 exists"),
    "no-heading": (
        change("CHANGELOG.md", "## 1.2.0.1 (2026-11-27)\n"),
        "CHANGELOG.md: found no heading of 1.2.0; expected ## 1.2.0 (YYYY-MM-DD)",
    ),
    "no-date": (
        change("CHANGELOG.md", "## 1.2.0 (unreleased)\n"),
        "CHANGELOG.md: found '## 1.2.0 (unreleased)'",
    ),
    "format": (
        change(release.FORMAT_FILE, OTHER),
        "the files of a run changed since v1.1.0, and the format is still 1; raise FORMAT",
    ),
    "no-version": (change("convbench/__init__.py", ""), "found no __version__"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_release_is_refused(name: str, root: Path) -> None:
    spoil, reason = REFUSED[name]
    spoil(root)
    assert reason in refusal(root)
    assert reason in refusal(root, dry_run=False)
    assert not (root / "log").exists(), "no check was run"


def test_all_reasons_are_given_at_once(root: Path) -> None:
    write(root, **{"CHANGELOG.md": "", release.FORMAT_FILE: OTHER})
    leave_uncommitted(root)
    assert len(refusal(root).splitlines()) == 3


@pytest.mark.parametrize(
    ("number", "digest"), [(2, "bb"), (1, "aa")], ids=["raised", "same-fields"]
)
def test_a_raised_format_or_the_same_fields_are_no_reason(
    number: int, digest: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, note="x", **{release.FORMAT_FILE: json.dumps({"format": number, "sha256": digest})})
    release.make_release(root, dry_run=True)
    assert "1.2.0 can be released" in capsys.readouterr().out
    assert git(root, "tag", "--list") == "v1.1.0"
    assert not (root / "log").exists()


@pytest.mark.parametrize("target", ["check", "test"])
def test_a_red_check_is_a_refusal(target: str, root: Path) -> None:
    write(root, Makefile=FILES["Makefile"].replace(f"{target}:\n\t", f"{target}:\n\t@false\n\t"))
    assert refusal(root, dry_run=False) == f"make {target} failed"
    assert not (root / "dist").exists()


def test_a_tree_that_changes_under_the_tests_is_a_refusal(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "build_files", lambda root, version: leave_uncommitted(root))
    assert "the tree changed while it was tested" in refusal(root, dry_run=False)


@pytest.mark.exhaustive
def test_a_wheel_that_does_not_start_is_a_refusal(root: Path) -> None:
    write(root, **{"convbench/__main__.py": "def main():\n    print('convbench 9')\n"})
    assert refusal(root, dry_run=False) == (
        "convbench-1.2.0-py3-none-any.whl: convbench --version: convbench 9"
    )


@pytest.mark.exhaustive
def test_a_release_is_checked_built_and_tagged(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release.make_release(root, dry_run=False)
    assert (root / "log").read_text().split() == ["checked", "tested"]
    assert git(root, "rev-list", "-1", "v1.2.0") == git(root, "rev-parse", "HEAD")
    assert sorted(path.name for path in (root / "dist").iterdir() if path.name[0] != ".") == [
        "convbench-1.2.0-py3-none-any.whl", "convbench-1.2.0.tar.gz",
    ]  # fmt: skip
    names = zipfile.ZipFile(root / "dist/convbench-1.2.0-py3-none-any.whl").namelist()
    assert "convbench/__main__.py" in names
    assert "next: git push origin v1.2.0" in capsys.readouterr().out


def test_the_script_prints_its_reasons_and_ends_with_1(root: Path) -> None:
    write(root, **{"CHANGELOG.md": ""})
    (root / "docs").mkdir()
    shutil.copy(ROOT / "docs/release.py", root / "docs")
    command = [sys.executable, "docs/release.py", "--dry-run"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["refused", "refused"]
