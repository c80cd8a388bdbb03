"""The trainer of the grids' policy: a few steps, gone on from, and loaded as a policy."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from convbench.judges.adaptation.learner import Learner
from convbench.judges.few_shot.runner import problem_of, settings_of
from convbench.judges.few_shot.solve import Solver
from tests.helpers import few_shot_runs
from tests.support.later import later

torch = later("torch")

TRAINER = "tests.lab.pocket.pretrain_grids"
SIZE = ("--rows", "2", "--hidden", "32", "--layers", "1", "--shown", "2")


def trained(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [TRAINER, *arguments])
    runpy.run_module(TRAINER, run_name="__main__")


def test_it_trains_saves_goes_on_and_is_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    trained(monkeypatch, "--out", str(first), "--steps", "200", "--stop", "100", *SIZE)
    said = capsys.readouterr().err
    assert said.startswith("step 100 context ")
    # A guess among all tokens costs log 760 = 6.6; colours and places alone bring it below 3.
    words = said.split()
    assert 0 < float(words[words.index("context") + 1]) < 5
    trained(monkeypatch, "--out", str(second), "--steps", "2", "--start", str(first), *SIZE)
    one, two = Learner.load(str(first)), Learner.load(str(second))
    cells = one.tokenizer.encode(" r1c2=5") + one.tokenizer.encode(" r3c3=5")
    vectors = one.model.get_input_embeddings().weight.detach()
    assert len(cells) == 2
    assert not torch.equal(vectors[cells[0]], vectors[cells[1]]), "a cell's token says its place"
    true, false = (one.tokenizer.encode(text)[0] for text in ("true", "false"))
    # .06 before they had parts of their own; .7 here, where 32 numbers stand for a token.
    assert (vectors[true] - vectors[false]).norm() > 0.5, "an adapter can tell them apart"
    gone = two.model.get_input_embeddings().weight.detach() - vectors
    assert 0 < gone.norm() < 0.2 * vectors.norm(), "it goes on from the first and not from scratch"
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    found = Solver(two, settings_of(few_shot_runs.quick_judge())).try_unadapted(problem)
    assert found.asked == 5 * 3 * 6, "it is asked in every view like the shipped one"
