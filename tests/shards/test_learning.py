"""What learners sample and adapt is work like any other: it is done shard by shard, a process that
is killed loses nothing, and the result is that of one process."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import SpecError
from convbench.learn.branches import BranchPreparation
from convbench.learn.job import Job, TrainContext
from convbench.learn.select import select
from convbench.learn.sweet.candidates import (
    missing_candidates,
    read_candidates,
    reply_key,
    sample_candidates,
)
from convbench.learn.sweet.pairs import SweetArgs
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.spread import ShardOptions
from convbench.schema.recipe import LaunchSpec, Recipe
from convbench.shards.runner import ShardRunner
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cli import post
from tests.support.serve import spawn

from .fire import doubled, said, working

TWO = ShardOptions(shards=3, on="local:2")


@contextmanager
def one_killed(run: Path) -> Iterator[list[int]]:
    """Kill a process of a run's shards once it has called a model."""
    killed: list[int] = []
    ended = threading.Event()

    def go() -> None:
        while not ended.wait(0.02) and not killed:
            if not any(file.stat().st_size for file in run.glob("shards/0*/calls.jsonl")):
                continue
            for pid, _ in working(run)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_branches_and_candidates_shard_by_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with spawn("provider") as url:
        calls = CallOptions(f"{url}/v1", quiet=True, concurrency=4)
        one, many = (tmp_path / name for name in ("one", "many"))
        stages.build(
            "demo",
            tasks=12,
            samples=2,
            seed=1,
            model="openai/scripted",
            run=one,
            api_base=f"{url}/v1",
            concurrency=4,
        )
        stages.judge(one, "rules", api_base=f"{url}/v1", concurrency=4)
        shutil.copytree(one, many)

        def branched(path: Path, spread: ShardOptions) -> list[str]:
            recipe = catalog.load_spec(Recipe, "recipes", "step-dpo")
            launch = catalog.load_spec(LaunchSpec, "launch", "none")
            job = Job(recipe.model_copy(update={"run": str(path)}), path / "checkpoints" / "c")
            return BranchPreparation.from_job(
                job, TrainContext(calls, SpecOptions(), launch, spread=spread)
            ).do_work()

        assert branched(one, ShardOptions()) == []
        post(url, "/_config", {"latency_s": 0.1})
        with one_killed(many / "branches") as killed:
            assert branched(many, TWO) == []
        assert len(killed) == 1
        found = said(many / "branches")
        assert found
        assert found == said(one / "branches")
        assert doubled(many / "branches") == {}
        rewards = [
            Counter(v.reward for v in Run.open(path / "branches").verdicts())
            for path in (one, many)
        ]
        assert rewards[0] == rewards[1]
        assert branched(many, ShardOptions()) == [], "nothing is left, however it is asked for"

        sets = catalog.parse_sets(["args.candidates=2", "args.held_out=0", "args.share=1"])
        recipe = catalog.load_spec(Recipe, "recipes", "sweet", sets=sets)
        settings = SweetArgs.from_args(recipe.args, recipe.name)

        def sampled(path: Path, spread: ShardOptions) -> dict[Any, str]:
            run = Run.open(path)
            file = path / "checkpoints" / "sweet" / "candidates.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            chosen = select(run, recipe.data)
            sample_candidates(run, recipe, chosen, settings, file, calls,
                   ShardRunner(spread, calls, SpecOptions()))  # fmt: skip
            assert not missing_candidates(chosen, settings, file)
            there = [
                ((*reply_key(row), row["candidate"]), row["text"]) for row in read_candidates(file)
            ]
            assert len(dict(there)) == len(there), "none stands twice"
            return dict(there)

        post(url, "/_config", {"latency_s": 0.0})
        alone = sampled(one, ShardOptions())
        post(url, "/_config", {"latency_s": 0.1})
        with one_killed(many / "candidates" / "sweet") as killed:
            assert sampled(many, TWO) == alone
        assert len(killed) == 1
        assert alone


def test_what_shards_could_not_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stages.build("demo", tasks=2, model="scripted:policy", run=tmp_path / "run")
    stages.judge(tmp_path / "run", "rules")
    with pytest.raises(SpecError, match="does no sampling that shards could share"):
        stages.train("swift", tmp_path / "run", model="local:pocket", on="local:2")
