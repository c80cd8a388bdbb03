"""StepDPO on branches: sampled at every turn with the run's policy, judged, paired, trained on."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import BudgetError, TrainError
from convbench.learn import launch
from convbench.learn.branches import BranchPreparation
from convbench.learn.job import Job, TrainContext
from convbench.learn.train import TrainResult, resolve_recipe, train_recipe
from convbench.options.build import BuildOptions
from convbench.options.judge import JudgeOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.options.train import TrainOptions
from convbench.schema.recipe import LaunchSpec
from convbench.shards.build import build_or_resume
from convbench.shards.judge import judge_run
from convbench.store.run import Run
from convbench.views import messages_before, policy_turns
from tests.helpers.cli import finish, get, post, records, start, until
from tests.learn import tiny
from tests.support.serve import spawn

QUIET = CallOptions(quiet=True)
SETS = (
    "pairing.source=resampled", "fit.max_steps=2", "fit.gradient_checkpointing=false",
    "fit.save=end", "fit.learning_rate=0.001", "fit.log_every=1",
)  # fmt: skip


def had(path: Path, task: str, model: str, calls: CallOptions, tasks: int) -> Run:
    """Questions, two conversations each, judged."""
    shape = RunSettings("thinking", samples=2, temperatures=(1.0,), max_tokens=64, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)  # runs/latest lies in the current folder
        asked = BuildOptions(task, tasks=tasks, shape=shape, model=model, run=path, calls=calls)
        made = build_or_resume(asked).built
        assert made is not None
        assert made.jobs.done == 2 * tasks, made
        judge_run(JudgeOptions(("rules",), path, calls=calls))
    return Run.open(path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight questions of the embedded world, had with the shipped policy."""
    return had(tmp_path_factory.mktemp("built") / "run", "pocket", "local:pocket", QUIET, 8).path


@pytest.fixture
def run(built: Path, tmp_path: Path) -> Run:
    """A copy to train on."""
    return Run.open(shutil.copytree(built, tmp_path / "run"))


def options(run: Run, *sets: str, **more: Any) -> TrainOptions:
    """What is asked of `train`."""
    specs = SpecOptions(sets=(*SETS, *sets))
    return TrainOptions("step-dpo", run.path, specs=specs, in_process=True,
                        **{"calls": QUIET, **more})  # fmt: skip


def do(run: Run, *sets: str, **more: Any) -> TrainResult:
    """Train in this process."""
    return train_recipe(options(run, *sets, **more))


def branching(run: Run, calls: CallOptions = QUIET) -> BranchPreparation:
    """The branches that a training would have."""
    asked = options(run, model="local:pocket", calls=calls)
    recipe = resolve_recipe(asked, [run], {"pairing.source": "resampled"})
    means = TrainContext(calls, SpecOptions(), catalog.load_spec(LaunchSpec, "launch", "none"))
    return BranchPreparation.from_job(Job(recipe, run.checkpoints_folder / recipe.name), means)


def test_branches_pairs_and_rewards_are_exact(run: Run) -> None:
    shown = "\n".join(do(run, dry_run=True).preview)
    assert not run.branches_folder.exists(), "a dry run writes nothing"
    assert branching(run).do_work() == []
    held = Run.open(run.branches_folder)
    before = [file.read_text() for file in (held.calls_file, held.verdicts_file)]
    result = do(run)  # stopped after the branches, a training takes them as they lie there
    assert [file.read_text() for file in (held.calls_file, held.verdicts_file)] == before
    parents = {c.conversation_id: c for c in run.conversations()}
    train_ids = {name for name, c in parents.items() if run.examples[c.example_id].split == "train"}
    protocol = run.manifest.protocol
    every = {(name, turn) for name in train_ids for turn in policy_turns(protocol, parents[name])}
    left = {c.branch: c for c in held.conversations()}
    assert {(b.parent, b.turn) for b in left if b} == every, "each train turn once, no test one"
    assert len(left) == len(every)
    assert f"branches: {len(every)} to sample" in shown
    assert f"{len(train_ids) * (3 + 2 + 1)} calls" in shown
    assert f"verdicts: {len(every)} of judge rules" in shown

    rewards = {v.conversation_id: v.reward for r in (run, held) for v in r.verdicts()}
    expected = []
    for where, branch in left.items():
        assert where is not None
        parent = parents[where.parent]
        assert branch.turns[: where.turn] == parent.turns[: where.turn]
        assert (branch.systems, branch.temperature) == (parent.systems, parent.temperature)
        one, other = rewards[branch.conversation_id], rewards[parent.conversation_id]
        assert one is not None
        assert other is not None
        said = [c.turns[where.turn].content for c in (branch, parent)]
        if one != other and said[0] != said[1]:
            seen = messages_before(protocol, parent, protocol.policy, where.turn)
            expected.append((tuple(seen), *(said if one > other else reversed(said))))
    assert result.path is not None
    job = Job.from_file(result.path / "recipe.yaml")
    pairs = launch.load_trainer(launch.locate_trainer("step_dpo")).data(job)
    found = [(p.messages, p.chosen.text, p.rejected.text) for p in pairs.items]
    assert Counter(map(str, found)) == Counter(map(str, expected))
    assert len(found) >= 2
    summary = json.loads((result.path / "training.json").read_text())
    assert summary["items"] == len(found)
    assert sum(summary["skipped"].values()) - summary["skipped"]["not in split train"] == (
        len(every) - len(found)
    )
    again = "\n".join(do(run, dry_run=True).preview)
    assert f"pairs: {len(found)}\n" in again, "with the branches there, a dry run shows the pairs"


def test_nothing_is_asked_twice_after_a_kill(tmp_path: Path) -> None:
    """Killed with calls in flight, then stopped by its budget, then whole: each reply is kept."""
    with spawn("provider") as url:
        served = CallOptions(f"{url}/v1", quiet=True, concurrency=4)
        run = had(tmp_path / "run", "demo", "openai/scripted", served, tasks=6)
        calls = run.branches_folder / "calls.jsonl"
        post(url, "/_reset")
        post(url, "/_config", {"latency_s": 0.2})
        command = ["train", "step-dpo", "--run", str(run.path), "--model", "local:pocket",
                   "--quiet", "--concurrency", "4", "--launch", "none"]  # fmt: skip
        process = start(tmp_path, *command, "--set", "pairing.source=resampled")
        until(lambda: calls.exists() and len(records(calls)) >= 6, process)
        process.kill()
        finish(process)
        kept, sent = records(calls), get(url, "/_stats")["calls"]
        assert 0 <= sent - len(kept) <= 4
        assert not list(run.checkpoints_folder.glob("*/recipe.yaml")), "held, and nothing in it"
        post(url, "/_config", {"latency_s": 0.0})
        spent = sum(r["prompt_tokens"] + r["completion_tokens"] for r in kept)
        few = replace(served, budget_tokens=spent + 6000)
        with pytest.raises(BudgetError):
            branching(run, few).do_work()
        assert len(records(calls)) > len(kept)
        assert branching(run, served).do_work() == []
        everything = records(calls)
        assert everything[: len(kept)] == kept
        assert set(Counter((r["key"], r["hash"]) for r in everything).values()) == {1}
        assert get(url, "/_stats")["calls"] == len(everything) + sent - len(kept)
        assert branching(run, served).is_ready()


def test_more_branches_a_turn_keep_those_there(run: Run) -> None:
    branching(run).do_work()
    first = {c.conversation_id for c in Run.open(run.branches_folder).conversations()}
    shown = "\n".join(do(run, "pairing.per_turn=2", dry_run=True).preview)
    assert f"branches: {len(first)} to sample, 2 at each policy turn" in shown


def test_what_cannot_be_branched_is_refused(run: Run, tmp_path: Path) -> None:
    manifest = run.manifest
    gone = manifest.cast["assistant"].model_copy(update={"model": "local:/no/such/weights"})

    def cast(**update: Any) -> Run:
        changed = manifest.model_copy(update={"cast": {**manifest.cast, "assistant": gone}})
        (run.path / "run.json").write_text(changed.model_copy(update=update).model_dump_json())
        return Run.open(run.path)

    with pytest.raises(TrainError, match=r"no branch can be sampled.*pairing\.source=logged"):
        do(cast(), model="local:pocket")
    gone = gone.model_copy(update={"model": "local:pocket", "fingerprint": "other"})
    with pytest.raises(TrainError, match="no longer those that spoke in the conversations"):
        do(cast(), model="local:pocket")
    with pytest.raises(TrainError, match="imported conversations"):
        do(cast(kind="import"), model="local:pocket")
    (run.path / "run.json").write_text(manifest.model_dump_json())
    verdicts = run.verdicts_file.read_text()
    mark = json.loads(verdicts.splitlines()[0])["fingerprint"]
    kept = run.path / "judges" / f"{mark}.json"
    kept.rename(kept.with_name("f" * 16 + ".json"))
    run.verdicts_file.write_text(verdicts.replace(mark, "f" * 16))
    with pytest.raises(TrainError, match=r"another version.*convbench judge --judge rules"):
        do(run)
    people = tiny.judged_run(tmp_path / "people", f"local:{tiny.save_model(tmp_path / 'model')}")
    with pytest.raises(TrainError, match="judge 'j' cannot score new conversations"):
        do(people)
    assert not run.branches_folder.exists()
