"""The wheel, installed on its own in an empty folder, has all it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, from it the wheel, and unpack that into a folder of its own; the
    environment's packages serve."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


Run = Callable[..., str]


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Run commands of the wheel's convbench in an empty folder, in one process, which loads torch
    once; return what they printed."""

    def command(*commands: str) -> str:
        code = (
            f"import shlex, sys; sys.path.insert(0, {str(installed)!r}); import convbench\n"
            f"assert convbench.__file__.startswith({str(installed)!r}), convbench.__file__\n"
            "from convbench.__main__ import main\n"
            "for line in sys.argv[1:]:\n"
            "    sys.argv[1:] = shlex.split(line)\n"
            "    try:\n"
            "        main()\n"
            "    except SystemExit as ended:\n"
            "        assert ended.code in (0, None), line\n"
        )
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, "-c", code, *commands],
            cwd=tmp_path, env={**env, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return command


def test_specs_trainers_weights_and_pages_are_in_it(installed: Path) -> None:
    package = installed / "convbench"
    for name in ("specs/tasks/arc.yaml", "specs/schemas/task.json", "specs/models.yaml",
                 "trainers/weighted_sft.py", "pocket/weights/model.safetensors", "tasks/demo.jsonl",
                 "reports/paper/results.csv", "catalog/scaffolds/task.yaml",
                 "constraints.txt", "py.typed"):  # fmt: skip
        assert (package / name).is_file(), f"the wheel lacks {name}"
    assert list((package / "viewer").rglob("*.js")), "the wheel lacks the viewer's scripts"


def test_what_made_the_weights_is_not_in_it(installed: Path) -> None:
    """Of pre-training a wheel has the weights; of the trainers, those that recipes name."""
    learners = {path.name for path in (ROOT / "trainers").glob("*.py")}
    assert {path.name for path in (installed / "convbench" / "trainers").iterdir()} == learners
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {
        "convbench"
    }


def test_it_works_in_an_empty_folder(run: Run) -> None:
    assert "arc" in run("list tasks")
    run(
        "build demo --model scripted:policy --tasks 40 --run r --quiet",
        "judge --run r --quiet",
    )
    assert "120" in run("query 'select count(*) from conversations' --run r")


def test_every_recipe_dry_runs(run: Run) -> None:
    recipes = ("refit", "swift", "star-gate", "dpo", "step-dpo")
    said = run(
        "build pocket --model local:pocket --tasks 20 --max-tokens 48 --run r --quiet",
        "judge --run r --quiet",
        *(f"train {recipe} --run r --dry-run" for recipe in recipes),
    )
    assert all(f"next: convbench train {recipe} --run r\n" in said for recipe in recipes)
