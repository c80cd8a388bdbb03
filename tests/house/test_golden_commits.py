"""No commit changes both the code and what guards it, unless it says why.

Counted from the commit that brought the fence's golden files: one that touches `convbench/` or
`trainers/` and a golden file, an attack or a test of resuming needs a line `golden: REASON`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"(convbench|trainers)/.*\.py$")
GUARDS = re.compile(
    r"tests/(fence/golden/|fence/kept/|hostile/|.*/golden/|.*test_(resume|crash)\w*\.py$)"
)
REASON = re.compile(r"^golden: \S+", re.MULTILINE)


def git(*words: str) -> str:
    """Return what git prints."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def unexplained(commit: str) -> bool:
    """Whether a commit changes code and its guards without saying why."""
    message, _, names = git("show", "--format=%B%x00", "--name-only", commit).partition("\0")
    touched = names.split()
    both = any(map(CODE.match, touched)) and any(map(GUARDS.match, touched))
    return both and not REASON.search(message)


def test_code_and_its_guards_change_apart() -> None:
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone has no history to look at")
    added = git(
        "log", "--diff-filter=A", "--format=%H", "--", "tests/fence/golden/list-runs.txt"
    ).split()
    if not added or not (ROOT / "tests" / "fence" / "golden").exists():
        pytest.skip("there is no fence yet")
    since = git("rev-list", "--no-merges", f"{added[-1]}..HEAD").split()
    assert not [git("log", "-1", "--oneline", one).strip() for one in since if unexplained(one)]
