"""No commit changes both the code and what guards it, unless it says why.

Counted from the tag `fence`; where a clone has no tags, from the last commit that brought the
fence's golden files; in a shallow clone, from its oldest commits, whose changes cannot be seen. A
commit that touches the package or the trainers and a golden file, the fence, an attack, or a test
of resuming and crashes needs a line `golden: REASON` in its message.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TAG = "fence"
FIRST_GOLDEN = "tests/fence/golden/list-runs.txt"
CODE = re.compile(r"(convbench|trainers)/")
GUARDS = re.compile(
    r"tests/(fence/|hostile/|.*/golden/|.*test_\w*(golden|resume|crash|kill|journal)\w*\.py$)"
)
REASON = re.compile(r"^golden: \S+", re.MULTILINE)


def git(repository: Path, *words: str) -> str:
    """Return what git prints."""
    command = ["git", "-c", "core.quotePath=false", *words]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def oldest(repository: Path) -> list[str]:
    """Return the commits of a shallow clone that have lost their parents."""
    file = repository / git(repository, "rev-parse", "--git-path", "shallow")
    return file.read_text().split() if file.exists() else []


def start(repository: Path) -> str | None:
    """Return the commit from which on commits are counted, if it is there."""
    if git(repository, "tag", "--list", TAG):
        return git(repository, "rev-list", "-1", TAG)
    if not git(repository, "ls-tree", "HEAD", FIRST_GOLDEN):
        return None
    brought = git(repository, "log", "--diff-filter=A", "--format=%H", "--", FIRST_GOLDEN)
    return next(iter(brought.split()), None)


def unexplained(repository: Path, commit: str) -> bool:
    """Whether a commit changes code and its guards without saying why."""
    shown = git(repository, "show", "--format=%B%x00", "--name-only", "--no-renames", commit)
    message, _, names = shown.partition("\0")
    touched = names.split("\n")
    both = any(map(CODE.match, touched)) and any(map(GUARDS.match, touched))
    return both and not REASON.search(message)


def refused(repository: Path) -> list[str]:
    """Return the commits since the start that change both without saying why, a line each."""
    since = start(repository)
    assert since, f"there is neither a tag {TAG} nor {FIRST_GOLDEN}"
    before = [f"^{one}" for one in (since, *oldest(repository))]
    commits = git(repository, "rev-list", "--no-merges", "HEAD", *before).split()
    wrong = [one for one in commits if unexplained(repository, one)]
    return [git(repository, "log", "-1", "--format=%h %s", one) for one in wrong]


def test_code_and_its_guards_change_apart() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there are no commits to look at")
    if start(ROOT) is None:
        pytest.skip(f"there is no fence yet: neither a tag {TAG} nor {FIRST_GOLDEN}")
    wrong = refused(ROOT)
    assert not wrong, "code and its guards in one commit: part them, or add a line golden: REASON"


CODE_FILE, GUARD_FILE = "convbench/stats/means.py", "tests/commands/test_files.py"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository whose first commit brought the golden files."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Someone")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "someone@example.org")
    path = tmp_path / "origin"
    path.mkdir()
    git(path, "init", "--quiet")
    commit(path, "Both, before the fence", CODE_FILE, GUARD_FILE)
    commit(path, "The fence", FIRST_GOLDEN)
    return path


def commit(repository: Path, message: str, *files: str) -> None:
    """Change files and commit them."""
    for name in files:
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        with (repository / name).open("a") as file:
            file.write(f"{message}\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", message)


@pytest.mark.parametrize(
    "guard",
    [
        GUARD_FILE,
        FIRST_GOLDEN,
        "tests/fence/masks.py",
        "tests/rollout/golden/chat-standard-1.txt",
        "tests/rollout/test_resume.py",
        "tests/rollout/test_crash.py",
    ],
)
def test_a_commit_that_changes_code_and_a_guard_says_why(repository: Path, guard: str) -> None:
    commit(repository, "Means are medians", CODE_FILE, guard)
    assert [line.partition(" ")[2] for line in refused(repository)] == ["Means are medians"]
    git(repository, "commit", "--quiet", "--amend", "-m", "Medians\n\ngolden: means were wrong")
    assert refused(repository) == []


@pytest.mark.parametrize("files", [[CODE_FILE], [GUARD_FILE], [CODE_FILE, "tests/stats/test_a.py"]])
def test_other_commits_need_no_reason(repository: Path, files: list[str]) -> None:
    commit(repository, "Some other step", *files)
    assert refused(repository) == []


def test_a_file_that_moves_is_changed(repository: Path) -> None:
    (repository / "tests/rollout").mkdir()
    git(repository, "mv", GUARD_FILE, "tests/rollout/test_files.py")
    commit(repository, "An attack moves away", CODE_FILE)
    assert len(refused(repository)) == 1


def test_a_tag_moves_the_start(repository: Path) -> None:
    commit(repository, "Both", CODE_FILE, GUARD_FILE)
    git(repository, "tag", TAG)
    assert refused(repository) == []
    commit(repository, "Both again", CODE_FILE, GUARD_FILE)
    assert len(refused(repository)) == 1


@pytest.mark.parametrize(("depth", "seen"), [(1, 0), (2, 1), (3, 2)])
def test_a_shallow_clone_looks_at_what_it_has(
    repository: Path, tmp_path: Path, depth: int, seen: int
) -> None:
    commit(repository, "Both", CODE_FILE, GUARD_FILE)
    commit(repository, "Both again", CODE_FILE, GUARD_FILE)
    clone = tmp_path / "clone"
    words = ["--quiet", f"--depth={depth}", "--no-tags", f"file://{repository}", str(clone)]
    git(tmp_path, "clone", *words)
    assert len(refused(clone)) == seen
