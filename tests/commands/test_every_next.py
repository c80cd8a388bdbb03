"""Every command that prints what to type next: each of its lines is run to its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tests.support.app import app
from tests.support.exhaustive import first_of
from tests.support.next_lines import next_words
from tests.support.next_runs import run_to_end

BUILD = "build demo --tasks 4 --samples 1 --temperatures 0.5 --model scripted:policy --run runs/"
TRAIN = (
    "train swift --run runs/demo --set fit.max_steps=1 --set fit.batch_size=2 "
    "--set fit.accumulation=1 --out"
)
LINES = {
    "build": [f"{BUILD}built", f"{BUILD}dry --dry-run"],
    "judge": ["judge --judge rules --run runs/one", "judge --judge rules --run runs/one --dry-run",
              "judge --pairwise base swift --judge pairwise-rules --run runs/demo"],
    "train": [f"{TRAIN} again", f"{TRAIN} trained --dry-run"],
    "eval": ["eval scripted:policy --run runs/one --name other",
             "eval scripted:policy --run runs/one --dry-run"],
    "report": ["report runs/one --split all", "report runs/demo"],
    "experiment": ["experiment small.yaml --dry-run", "experiment small.yaml"],
    "list": ["list", "list tasks", "list runs"],
    "show": ["show demo", "show protocols/direct", "show judges/rules", "show recipes/swift",
             "show experiments/pocket", "show models/pocket"],
    "init": ["init task capitals", "init task advice --open", "init protocol asks",
             "init judge brief", "init recipe mine"],
    "import": ["import rows.jsonl --run runs/logged"],
    "gold": ["gold --run runs/one --draw 2 --split all", "gold export queue.jsonl --run runs/one",
             "gold runs/demo"],
    "publish": ["publish me/set --run runs/one --dry-run"],
    "view": ["view runs/one --static site"],
    "demo": ["demo --tasks 20"],
}  # fmt: skip
"""What is typed, by command; `make test` takes the first of each."""
SILENT = ("query", "export", "doctor")
"""Commands after which nothing is to be typed."""
ELSEWHERE = {
    "pull": "a Hub",
    "merge": "parts of a run",
    "status": "batches at a provider", "cancel": "batches at a provider",
}  # fmt: skip
"""What these need; they are run in test_next_elsewhere.py and test_next_of_batches.py."""
SMALL = (
    "title: small\ntasks: [demo]\nmodes: [thinking]\ncount: 6\nmodel: scripted:policy\n"
    "judges: [rules]\nlearners: [base]\nsamples: 1\ntemperatures: [0.5]\n"
)


def test_every_command_is_run_here_or_says_nothing_to_type() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted([*LINES, *SILENT, *ELSEWHERE]) == sorted(known)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run of every kind; the newest is one of weights that can be trained."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("next")
        patch.chdir(folder)
        patch.setenv("ANTHROPIC_API_KEY", "none is sent by a dry run")
        (folder / "small.yaml").write_text(SMALL)
        row = {"messages": [{"role": "user", "content": "Which?"},
                            {"role": "assistant", "content": "That."}], "reward": 1}  # fmt: skip
        (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
        for line in (f"{BUILD}one", "judge --judge rules --run runs/one",
                     "demo --tasks 20"):  # fmt: skip
            run_to_end(line.split())
        yield folder


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "line",
    [
        line
        for word, lines in LINES.items()
        for line in (lines if word == "gold" else first_of(lines))  # what is drawn is exported
    ],
)
def test_what_is_printed_as_next_is_run_to_its_end(place: Path, line: str) -> None:
    if line.startswith("report runs/one"):  # what other lines evaluated there is of other questions
        shutil.rmtree("runs/one/evals", ignore_errors=True)
    latest = Path("runs/latest")
    latest.unlink()
    latest.symlink_to("demo")  # weights that a recipe can train
    done = run_to_end(line.split())
    found = next_words(done.out)
    assert "next: " in done.out, f"{line} says nothing to type next"
    for words in found:
        run_to_end(words)
