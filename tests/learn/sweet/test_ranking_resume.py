"""Ranking in a process of its own, whose end frees the device; killed, it goes on where it was."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import TrainError
from convbench.learn.job import Job, TrainContext
from convbench.learn.select import select
from convbench.learn.sweet.pairs import CANDIDATES, CRITIC, RANKED, SweetArgs, TrajectoryPairs
from convbench.options.shared import CallOptions, SpecOptions
from convbench.schema.recipe import LaunchSpec
from tests.helpers import tiny
from tests.helpers.collaboration import judged_run
from tests.support.later import later

torch = later("torch")
transformers = later("transformers")
ranking = later("convbench.learn.sweet.ranking")
stages = later("convbench.learn.sweet.stages")

BUDGET, KILLED_AT = 400, 3
KILLED = f"""
import os, signal, sys
from convbench.learn.sweet import critic, ranking
critic.BUDGET, score, calls = {BUDGET}, critic.score_turns, []
def score_or_die(*given, **more):
    calls.append(0)
    if len(calls) == {KILLED_AT}:
        os.kill(os.getpid(), signal.SIGKILL)
    return score(*given, **more)
critic.score_turns = score_or_die
ranking.main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint's folder with its critic and candidates of each turn, not ranked yet."""
    root = tmp_path_factory.mktemp("ranking")
    base = tiny.save_model(root / "base")
    told = [
        (f"q{i}", [f"which {word}?", f"I WANT TO ANSWER: {'x' * i}"], reward)
        for i in range(3)
        for word, reward in (("colour", 1.0), ("mood", 0.0))
    ]
    run = judged_run(root / "run", told, f"local:{base}")
    sets = {"args.held_out": 0, "args.share": 1.0, "fit.batch": None, "fit.floor": 0.0}
    file = tiny.resolved(root / "sweet", "sweet", run, base, **sets)
    shutil.copytree(base, file.parent / CRITIC)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight) / 50
    model.save_pretrained(file.parent / CRITIC)
    logged = select(run, Job.from_file(file).recipe.data).logged
    rows = [
        {"conversation_id": item.conversation_id, "turn": turn, "candidate": n,
         "text": f"reply {'so ' * n}{turn}", "cut": False}
        for item in logged for turn in (1, 3) for n in range(4)
    ]  # fmt: skip
    assert rows
    (file.parent / CANDIDATES).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file.parent


def copied(folder: Path, name: str) -> Path:
    """A copy beside it, whose recipe names the same run."""
    return Path(shutil.copytree(folder, folder.with_name(name)))


def ranked(folder: Path) -> list[float]:
    lines = (folder / RANKED).read_text().splitlines()
    return [json.loads(line)["advantage"] for line in lines]


def rank_here(folder: Path) -> None:
    job = Job.from_file(folder / "recipe.yaml")
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    ranking.rank_candidates(job, select(job.run, job.recipe.data), settings)


@pytest.mark.slow
def test_a_kill_loses_no_batch_that_was_scored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    def counted(model: object, rows: list[object], *more: object, **options: object) -> object:
        batches.append(len(rows))
        return score(model, rows, *more, **options)

    from convbench.learn.sweet import critic

    score = critic.score_turns
    monkeypatch.setattr(critic, "score_turns", counted)
    monkeypatch.setattr(critic, "BUDGET", BUDGET)
    whole, stopped = copied(folder, "whole"), copied(folder, "stopped")
    rank_here(whole)
    assert len(batches) > 2 * KILLED_AT
    assert any(ranked(whole))
    assert not (whole / "scores.jsonl").exists(), "only until all are ranked"

    command = [sys.executable, "-c", KILLED, str(stopped)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    scores = stopped / "scores.jsonl"
    assert len(scores.read_text().splitlines()) == KILLED_AT - 1
    assert not (stopped / RANKED).exists()
    scores.write_bytes(scores.read_bytes()[:-4])  # its last line was cut short
    every, batches[:] = list(batches), []
    rank_here(stopped)
    assert batches == every[KILLED_AT - 2 :], "the batch of the cut line, and those after it"
    assert ranked(stopped) == ranked(whole)


def preparation(folder: Path) -> Any:
    job = Job.from_file(folder / "recipe.yaml")
    launch = LaunchSpec(name="none", title="one process")
    context = TrainContext(CallOptions(), SpecOptions(), launch, in_process=True)
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    pairs = TrajectoryPairs(select(job.run, job.recipe.data), (), ())
    return stages.SweetPreparation(job, context, settings, pairs.selection, pairs)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_with_a_device_the_scorer_is_gone_before_the_next_engine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = copied(folder, "here")
    rank_here(here)
    loaded: list[object] = []
    monkeypatch.setattr("convbench.learn.fitting.load_model", lambda *given, **_: loaded.append(1))
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", "1x80")
    apart = copied(folder, "apart")
    preparation(apart)._rank_candidates()
    assert not loaded, "nothing of it in this process"
    assert ranked(apart) == pytest.approx(ranked(here), abs=1e-5)
    assert (apart / "rank.log").exists()
    broken = copied(folder, "broken")
    shutil.rmtree(broken / CRITIC)
    with pytest.raises(TrainError, match=r"critic.*rank\.log"):
        preparation(broken)._rank_candidates()
