"""`train sweet`, killed in stage 1 and between the stages: taken up where it stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from convbench.schema import ModelConfig
from convbench.store import Run
from convbench.store.jsonl import read_records
from tests.helpers.cli import start, until
from tests.helpers.collaboration import judged_run
from tests.helpers.tiny import save_model
from tests.helpers.typed import type_here
from tests.support.exhaustive import exhaustive
from tests.support.provider import Plan, Provider

CANDIDATES, QUESTIONS = 4, 6
CALLS = CANDIDATES * QUESTIONS * 2
SETS = (
    f"args.candidates={CANDIDATES}", "args.held_out=0", "args.share=1", "args.pairs=2",
    "args.conversations=1", "fit.epochs=1",
    "fit.batch_size=2", "fit.accumulation=1", "fit.save=epoch", "fit.learning_rate=1e-3",
    "fit.gradient_checkpointing=false",
)  # fmt: skip
ASKED = [part for one in SETS for part in ("--set", one)]


def launched(run: Run, words: Sequence[str]) -> subprocess.Popen[str]:
    keys = {"OPENAI_API_KEY": "none"}
    return start(run.path.parent, *words, extra=keys, start_new_session=True)


def lines(file: Path) -> list[Any]:
    return list(read_records(file)) if file.exists() else []


def killed(process: subprocess.Popen[str], when: Callable[[], bool]) -> None:
    """Kill the command and its workers, with no chance to tidy up."""
    try:
        until(when, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def uninterrupted(folder: Path) -> Path:
    """Train the same critic beside it, at a stretch."""
    from convbench.learn import launch
    from convbench.learn.job import Job

    file = folder.parent.parent / "whole" / "critic" / "recipe.yaml"
    file.parent.mkdir(parents=True)
    shutil.copy(folder / "recipe.yaml", file)
    job, module = Job.from_file(file), launch.load_trainer(launch.locate_trainer("sweet_critic"))
    module.fit(job, module.data(job))
    return file.parent


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("in_stage_1", [False, exhaustive(True)])
def test_killed_in_stage_1_and_between_the_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_stage_1: bool
) -> None:
    monkeypatch.setattr("tests.helpers.cli.LONG_S", 600.0)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    base = save_model(tmp_path / "base")
    told = [
        (f"q{i}", [f"which {w}?", "I WANT TO ANSWER: x"], reward)
        for i in range(QUESTIONS)
        for w, reward in (("colour", 1.0), ("mood", 0.0))
    ]
    with Provider(Plan(latency_s=0.1)) as provider:
        policy = ModelConfig(model="openai/scripted", api_base=provider.api_base, weights=str(base))
        run = judged_run(tmp_path / "run", told, policy)
        epochs = f'args.critic={{"epochs": {16 if in_stage_1 else 1}}}'
        asked = (*ASKED, "--set", epochs)
        words = ("train", "sweet", "--run", str(run.path), "--concurrency", "2", *asked)
        folder = run.checkpoints_folder / "sweet"
        critic, candidates = folder / "critic", folder / "candidates.jsonl"

        if in_stage_1:
            saved = "checkpoint-*/trainer_state.json"
            killed(launched(run, words), lambda: len(list(critic.glob(saved))) > 1)
            assert not (critic / "training.json").exists()
            for step in (9998, 9999):  # saves that the kill cut short
                (critic / f"checkpoint-{step}").mkdir()
            (critic / "checkpoint-9999" / "trainer_state.json").touch()
            assert provider.stats.calls == 0

        killed(launched(run, words), lambda: len(lines(candidates)) >= 10)
        trained = (critic / "model.safetensors").stat().st_mtime_ns
        journalled = len(lines(run.calls_file))
        assert 10 <= journalled < CALLS
        candidates.write_bytes(candidates.read_bytes()[:-5])  # and a line that was cut short
        provider.reset()

        done = type_here(*words)  # nothing kills this one
        assert done.code == 0, done.err
        assert "\ncritic         no pair of held-out tasks" in done.out
        assert provider.stats.calls == CALLS - journalled
        assert set(provider.stats.answered_by_request.values()) == {1}

    found = lines(candidates)
    keys = [(row["conversation_id"], row["turn"], row["candidate"]) for row in found]
    assert len(keys) == len(set(keys)) == CALLS
    assert len(lines(folder / "ranked.jsonl")) == CALLS
    assert (folder / "training.json").exists()
    assert (critic / "model.safetensors").stat().st_mtime_ns == trained
    if not in_stage_1:
        return
    whole = uninterrupted(critic)
    from safetensors.torch import load_file

    taken_up, at_a_stretch = (load_file(f / "model.safetensors") for f in (critic, whole))
    for name, tensor in at_a_stretch.items():
        assert (taken_up[name] - tensor).abs().max() < 1e-6, name
