"""What it takes to add one of each: at most two files, in a copy of the checkout, then used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.store import Run
from tests.hub.runs import write_run
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

ROOT = Path(__file__).resolve().parents[2]
ADDED = Path(__file__).with_name("added")
FILES: dict[str, dict[str, str]] = {
    "judge kind": {"convbench/judges/brevity.py": "brevity.py"},
    "learner": {
        "trainers/ranked.py": "ranked.py",
        "specs/recipes/ranked.yaml": "title: by rank\ntrainer: ranked\n",
    },
    "objective": {
        "convbench/learn/losses/sharper.py": "sharper.py",
        "specs/recipes/sharper.yaml": "title: s\ntrainer: weighted\nloss: {name: sharper}\n",
    },
    "launcher": {"convbench/shards/one_by_one.py": "one_by_one.py"},
    "command": {"convbench/commands/count.py": "count.py"},
}
"""Files that are new, by what is added: one of `added/`, or its text."""
SPECS = {"specs/judges/brevity.yaml": "title: few words\nkind: brevity\n"}
"""What a user of it writes."""
EDITS: dict[str, dict[str, list[tuple[str, str]]]] = {
    "judge kind": {
        "convbench/schema/judge_kinds.py": [
            ('    "human": JudgeKindInfo(',
             '    "brevity": JudgeKindInfo("convbench.judges.brevity"),\n'
             '    "human": JudgeKindInfo('),
        ],
    },
    "command": {
        "convbench/commands/_words.py": [
            ('    "Runs": {\n',
             '    "Runs": {\n'
             '        "count": CommandEntry("count", "Count the conversations of a run."),\n'),
        ],
    },
    "provider": {
        "convbench/models/prices.py": [('    "openai",\n', '    "acme",\n    "openai",\n')],
    },
    "export format": {
        "convbench/formats/export.py": [
            ('"ms-swift"]', '"ms-swift", "bare"]'),
            ('    "sharegpt": ExportFormat(',
             '    "bare": ExportFormat(_bare_line),\n    "sharegpt": ExportFormat('),
        ],
        "convbench/commands/export.py": [('"ms-swift"]', '"ms-swift", "bare"]')],
    },
    "launcher": {
        "convbench/shards/launchers.py": [
            ("from convbench.shards.scripts",
             "from convbench.shards.one_by_one import OneByOneLauncher\n"
             "from convbench.shards.scripts"),
            ('    "slurm": ', '    "one-by-one": OneByOneLauncher(),\n    "slurm": '),
        ],
    },
}  # fmt: skip
"""Files that are edited: what stands there, and what then."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout with one more of each."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("convbench", "specs", "trainers"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=skip)
    for new in [*FILES.values(), SPECS]:
        for name, text in new.items():
            added = ADDED / text
            (root / name).write_text(added.read_text() if text.endswith(".py") else text)
    for edits in EDITS.values():
        for name, places in edits.items():
            for before, after in places:
                text = (root / name).read_text()
                assert text.count(before) == 1, f"{name}: the place of {before!r} has moved"
                (root / name).write_text(text.replace(before, after))
    return root


@pytest.mark.parametrize("what", sorted({*FILES, *EDITS}))
def test_at_most_two_files_are_written_by_hand(what: str) -> None:
    assert 1 <= len({*FILES.get(what, {}), *EDITS.get(what, {})}) <= 2


def typed(root: Path, *words: str, **names: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(root), **names}
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


def test_a_provider_is_its_name(copy: Path) -> None:
    key = "the key of acme"
    with Provider(Plan(api_keys=(key,))) as provider:
        words = ("build", "demo", "--tasks", "2", "--samples", "1", "--temperatures", "0.5")
        where = ("--model", "acme/tiny", "--api-base", provider.api_base, "--run", "acme")
        typed(copy, *words, *where, "--quiet", ACME_API_KEY=key)
        assert provider.stats.answered == provider.stats.calls >= 2


def test_an_export_format_is_its_entry(copy: Path) -> None:
    run = write_run(copy / "fourth")
    typed(copy, "export", str(run.path), "--to", "bare", "--out", str(copy / "bare"))
    lines = [line for file in (copy / "bare").glob("*.jsonl") for line in file.open()]
    assert lines
    assert all(set(json.loads(line)) == {"messages"} for line in lines)


def test_a_launcher_is_one_file_and_its_registration(copy: Path) -> None:
    words = ("build", "demo", "--tasks", "4", "--samples", "1", "--temperatures", "0.5")
    where = ("--model", "scripted:policy", "--run", "spread", "--shards", "2")
    typed(copy, *words, *where, "--on", "one-by-one", "--quiet")
    run = Run.open(copy / "spread")
    assert len([one for one in run.conversations() if one.failure is None]) == 4


def test_a_command_is_one_file_and_its_row(copy: Path) -> None:
    """Its help, its options, its answer, what it prints and what to type next follow."""
    run = write_run(copy / "fifth")
    there = sum(1 for _ in run.conversations())
    assert "count       Count the conversations of a run." in typed(copy, "--help")
    assert "Say so where there are fewer." in typed(copy, "count", "--help")
    path = str(run.path)
    assert typed(copy, "count", path).splitlines() == [
        f"conversations  {there}", "", f"next: convbench view {path}",
    ]  # fmt: skip
    answer = json.loads(typed(copy, "count", "--run", path, "--least", "999", "--json"))
    assert answer["result"] == {"conversations": there}
    assert answer["notes"] == ["fewer than 999"]
    (copy / "convbench.toml").write_text("[count]\nleast = 999\n")
    assert json.loads(typed(copy, "count", path, "--json"))["notes"][-1] == "fewer than 999"
    (copy / "convbench.toml").unlink()
