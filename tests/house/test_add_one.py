"""What it takes to add a judge kind and a learner: done to a copy of the checkout, then used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.publish.runs import write_run

ROOT = Path(__file__).resolve().parents[2]
ADDED = Path(__file__).with_name("added")
KIND = {
    "convbench/judge/kinds.py": (
        '    "human": Kind(',
        '    "brevity": Kind("convbench.judge.brevity"),\n    "human": Kind(',
    ),
    "convbench/schema/judge.py": ('Literal["rubric", ', 'Literal["brevity", "rubric", '),
}
"""Where a kind is registered: its entry, and its name in the schema."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout with one judge kind, one learner and one objective more."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("convbench", "specs", "trainers"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=skip)
    shutil.copy(ADDED / "brevity.py", root / "convbench" / "judge" / "brevity.py")
    for name, (before, after) in KIND.items():
        file = root / name
        text = file.read_text()
        assert text.count(before) == 1, f"{name}: the place of registration has moved"
        file.write_text(text.replace(before, after))
    (root / "specs" / "judges" / "brevity.yaml").write_text("title: few words\nkind: brevity\n")
    shutil.copy(ADDED / "ranked.py", root / "trainers" / "ranked.py")
    (root / "specs" / "recipes" / "ranked.yaml").write_text("title: by rank\ntrainer: ranked\n")
    shutil.copy(ADDED / "sharper.py", root / "convbench" / "learn" / "losses" / "sharper.py")
    recipe = "title: sharper\ntrainer: weighted\nloss: {name: sharper}\n"
    (root / "specs" / "recipes" / "sharper.yaml").write_text(recipe)
    return root


def typed(root: Path, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-m", "convbench", *words],
        env=env, cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_judge_kind_is_one_file_and_its_registration(copy: Path) -> None:
    run = write_run(copy / "run", verdicts=[])
    typed(copy, "judge", "--judge", "brevity", "--run", str(run.path), "--quiet")
    shown = typed(
        copy, "query", "select judge, count(*) as n, count(overall) as scored from verdicts "
        "group by 1", "--run", str(run.path), "--format", "csv",
    )  # fmt: skip
    there = sum(1 for one in run.conversations() if one.failure is None)
    assert shown.split()[1:] == [f"brevity,{there},{there}"]
    assert "judge brevity" in typed(copy, "report", str(run.path))


def test_a_learner_is_one_file_and_its_recipe(copy: Path) -> None:
    run = write_run(copy / "other")
    assert "ranked" in typed(copy, "list", "recipes")
    shown = typed(
        copy, "train", "ranked", "--run", str(run.path), "--model", "local:pocket", "--dry-run"
    )
    assert "conversations about" in shown


def test_an_objective_is_one_file_and_its_recipe(copy: Path) -> None:
    run = write_run(copy / "third")
    words = ("train", "sharper", "--run", str(run.path), "--model", "local:pocket")
    assert "loss sharper; log pi_0 computed with the model" in typed(copy, *words, "--dry-run")
