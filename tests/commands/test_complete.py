"""What a shell offers: names of specs, models, runs and checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.commands._complete import make_completer
from tests.helpers.typed import Typist

ROOT = Path(__file__).parents[2]


def offered(cwd: Path, *words: str) -> list[str]:
    """What bash is given for the last of these words."""
    code = "import sys; sys.argv[0] = 'convbench'; from convbench.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False,
        env=os.environ | {
            "PYTHONPATH": str(ROOT), "_CONVBENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("convbench", *words)), "COMP_CWORD": str(len(words)),
        },
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_a_shell_is_offered_names(typist: Typist, tmp_path: Path) -> None:
    typist("build", "demo", "--model", "scripted:policy", "--tasks", "2", "--run", "runs/one")
    assert {"arc", "arc-easy"} <= set(offered(tmp_path, "build", "ar"))
    assert {"runs/latest", "runs/one"} <= set(offered(tmp_path, "judge", "--run", "runs/"))


def test_every_kind_has_names(typist: Typist) -> None:
    assert "rubric" in make_completer("judges")("rub")
    assert "swift" in make_completer("recipes")("s")
    assert "zero2" in make_completer("launch")("z")
    assert "judges/rubric" in make_completer("specs")("judges/")
    assert any(name.startswith("claude") for name in make_completer("models")("cl"))
    Path("runs/one/checkpoints/swift").mkdir(parents=True)
    Path("runs/one/checkpoints/swift/training.json").write_text("{}")
    assert "runs/one/checkpoints/swift" in make_completer("policies")("runs/")


def test_a_broken_folder_offers_less_and_says_nothing(
    typist: Typist, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("specs").mkdir()
    Path("specs/models.yaml").write_text("models: [")
    assert make_completer("models")("") == []
    assert capfd.readouterr() == ("", "")
