"""The demo in a short form, as a user sees it: its own process, an empty folder, no home."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.store import Run
from tests.support.later import needs
from tests.support.once import made_once

needs("trl")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
TASKS = 24
STEPS = ("build", "judge", "train swift", "eval swift", "train star-gate", "eval star-gate",
         "report")  # fmt: skip


def convbench(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command on 80 columns, with a home of its own and no colour."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CONVBENCH", "HF_", "XDG_"))}
    env = {**kept, "PYTHONPATH": str(ROOT), "HOME": str(cwd / "home"), "COLUMNS": "80",
           "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "convbench", *arguments],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=500,
    )  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo, and beside it what the demo showed; not to be changed."""

    def make(outer: Path) -> None:
        (outer / "demo").mkdir()
        done = convbench(outer / "demo", "demo", "--tasks", str(TASKS))
        assert done.returncode == 0, done.stderr
        (outer / "shown.json").write_text(json.dumps([done.args, 0, done.stdout, done.stderr]))

    return made_once(tmp_path_factory, "short-demo", make)


@pytest.fixture(scope="module")
def folder(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the demo's runs, this worker's own, for a user who has no others."""
    own = tmp_path_factory.mktemp("copy")
    shutil.copytree(original / "demo" / "runs", own / "runs", symlinks=True)
    return own


@pytest.fixture(scope="module")
def shown(original: Path) -> subprocess.CompletedProcess[str]:
    """What the demo showed."""
    return subprocess.CompletedProcess(*json.loads((original / "shown.json").read_text()))


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    """The demo's run."""
    return Run.open(folder / "runs" / "demo")


@pytest.mark.slow
def test_every_step_is_announced_in_order_with_a_reason(
    shown: subprocess.CompletedProcess[str],
) -> None:
    lines = shown.stderr.splitlines()
    heads = [place for place, line in enumerate(lines) if line.endswith("───")]
    assert tuple(lines[place].rstrip("─ ") for place in heads) == STEPS
    for place in heads:
        assert len(lines[place + 1]) > 40, lines[place : place + 2]


def test_every_conversation_is_built_and_judged(run: Run) -> None:
    conversations = list(run.conversations())
    assert len(conversations) == TASKS * 3
    assert all(one.failure is None and len(one.turns) == 6 for one in conversations)
    scored = {one.conversation_id for one in run.verdicts() if one.failure is None}
    assert scored == {one.conversation_id for one in conversations}


@pytest.mark.parametrize("name", ["swift", "star-gate"])
def test_both_learners_trained_and_answered_the_test_questions(run: Run, name: str) -> None:
    import torch
    from safetensors.torch import load_file

    folder = run.checkpoints_folder / name
    learnt = load_file(folder / "model.safetensors")
    shipped = load_file(ROOT / "convbench" / "pocket" / "weights" / "model.safetensors")
    assert any(not torch.equal(learnt[key].half(), value) for key, value in shipped.items())
    [child] = [path for path in (run.path / "evals").iterdir() if path.name == name]
    asked = {one.example_id for one in Run.open(child).conversations()}
    test = {one.example_id for one in run.examples.values() if one.split == "test"}
    assert asked == test
    assert len(list(Run.open(child).verdicts())) == 3 * len(test)


def test_it_ends_with_a_small_table_and_the_commands_to_go_on_with(
    shown: subprocess.CompletedProcess[str], folder: Path
) -> None:
    caption = r"^Differences to Base$"
    results, differences = re.split(caption, shown.stdout, flags=re.M)
    for method in ("SWiFt", "STaR-GATE", "Base"):
        assert re.search(rf"^{method} .* ±\d.* ±\d", results, flags=re.M), "not wrapped: piped"
    for method in ("SWiFt", "STaR-GATE"):
        assert re.search(rf"^{method} +[+−-]\d?\.\d+\** +\[", differences, flags=re.M), differences
    assert "By temperature" not in shown.stdout
    commands = re.findall(r"^next: convbench (.+)$", shown.stdout, flags=re.M)
    assert [command.split()[0] for command in commands[:2]] == ["show", "view"]
    looked = convbench(folder, *commands[0].split())
    assert looked.returncode == 0, looked.stderr
    assert "<thinking>" in looked.stdout


def test_the_folder_that_publish_would_send_is_there(run: Run, tmp_path: Path) -> None:
    from datasets import load_dataset

    # a cache of its own: the user's knows folders by name, whatever lies in them now
    cache = str(tmp_path)
    told = load_dataset(str(run.path / "publish"), "conversations", cache_dir=cache)
    assert sum(map(len, told.values())) == TASKS * 3


def test_nothing_is_written_elsewhere(original: Path) -> None:
    assert {path.name for path in (original / "demo").iterdir()} <= {"runs", "home"}


def test_the_same_command_skips_what_is_done(
    folder: Path, shown: subprocess.CompletedProcess[str]
) -> None:
    again = convbench(folder, "demo", "--tasks", str(TASKS))
    assert again.stdout == shown.stdout, again.stderr
    assert "step 1/" in shown.stderr
    assert "step 1/" not in again.stderr
