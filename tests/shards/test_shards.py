"""A run in shards is the run: the same set, read whole by every command, and merged into one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convbench.commands._command import RunContext
from convbench.commands.merge import MergeOptions
from convbench.commands.merge import run as merge_run
from convbench.engine.journal import Journal
from convbench.errors import RunError
from convbench.hub.dataset import write_dataset_folder
from convbench.hub.verify import verify_target
from convbench.judges.show import show_conversation
from convbench.learn.export import export_run
from convbench.options.build import BuildOptions
from convbench.options.shared import CallOptions, RunSettings
from convbench.options.spread import ShardOptions
from convbench.reports.experiment.experiment_document import _cell_cost
from convbench.shards.build import build_or_resume
from convbench.store import Run, shards
from convbench.store.overview import read_overview
from convbench.store.process import this_process
from convbench.store.query import run_query
from convbench.store.seal import check_seals
from convbench.store.shard_attempts import (
    LEFT,
    LONGEST,
    WORKING,
    ShardWorker,
    begin_attempt,
    refuse_in_work,
    shard_states,
)
from convbench.viewer.follow import GrowingIndex, run_status
from convbench.viewer.index import build_index
from tests.helpers import stages
from tests.support.app import app

from .fire import said

QUIET = CallOptions(quiet=True)
TASKS = 12


def built(run: Path, **more: Any) -> Run:
    options = BuildOptions(
        task="demo", tasks=TASKS, model="scripted:policy", run=run, calls=QUIET,
        shape=RunSettings(samples=2), **more,
    )  # fmt: skip
    result = build_or_resume(options)
    assert result.built is not None
    assert result.built.jobs.stopped is None
    assert result.built.complete == 2 * TASKS
    return Run.open(run)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = built(tmp_path_factory.mktemp("plain") / "run")
    stages.judge(run.path, "rules")
    return run


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = built(tmp_path_factory.mktemp("sharded") / "run", spread=ShardOptions(shards=5))
    found = stages.judge_result(run.path, "rules")
    assert [(one.jobs.done, one.jobs.failed, one.already_scored) for one in found.summaries] == [
        (24, 0, 0)
    ]
    return run


def scores(run: Run) -> list[Any]:
    keys = {one.conversation_id: one.key for one in run.conversations()}
    return sorted((keys[v.conversation_id], sorted(v.scores.items())) for v in run.verdicts())


def test_it_is_the_same_set(plain: Run, sharded: Run) -> None:
    assert said(sharded.path) == said(plain.path)
    assert scores(sharded) == scores(plain)
    assert not (sharded.path / "conversations.jsonl").exists()
    parts = shards.shard_folders(sharded.path)
    assert len(parts) == 5
    for index, folder in parts.items():  # each an ordinary run, of its groups alone
        alone = Run.open(folder)
        for one in alone.conversations():
            assert shards.shard_of(alone.examples[one.example_id].group_id, 5) == index


def test_every_reader_sees_the_whole(plain: Run, sharded: Run, tmp_path: Path) -> None:
    sql = "select count(*), count(distinct conversation_id), sum(n_turns) from conversations"
    assert run_query(sql, [sharded]).rows == run_query(sql, [plain]).rows
    sql = "select judge, count(*), round(avg(overall), 9) from verdicts group by 1"
    assert run_query(sql, [sharded]).rows == run_query(sql, [plain]).rows
    assert read_overview(sharded).conversations == 24
    assert read_overview(sharded).judges == ("rules",)
    assert _cell_cost(sharded, {}).unread == 0
    assert _cell_cost(sharded, {}).tokens == _cell_cost(plain, {}).tokens > 0
    index = build_index([sharded])
    assert index.total == 24
    name = next(iter(sharded.conversations())).conversation_id
    assert index.read_conversation(name)[1].conversation_id == name
    shown = show_conversation(name[:12], [sharded.path])
    assert shown is not None
    assert [one.judge for one in shown.verdicts] == ["rules"]
    laid = write_dataset_folder(sharded, "me/set", tmp_path / "set", judge="rules")
    assert sum(laid.rows["conversations"].values()) == 24
    export_run(sharded, "openai", tmp_path / "out")
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.open()]
    assert len(lines) == 24


def test_what_is_done_with_a_shard_is_sealed(plain: Run, sharded: Run, tmp_path: Path) -> None:
    """Shard by shard; a byte changed in one is found there. A sealed run that is spread, and one
    that is merged again, have seals that hold."""
    assert [one.problems for one in verify_target(target=str(sharded.path)).checked] == [[]]
    folder = tmp_path / "copy"
    shutil.copytree(sharded.path, folder)
    assert check_seals(folder) == check_seals(sharded.path)
    part = max(shards.shard_folders(folder).values())
    file = part / "verdicts.jsonl"
    data = file.read_bytes()
    assert b'"attempts":1' in data
    file.write_bytes(data.replace(b'"attempts":1', b'"attempts":2', 1))
    (problem,) = verify_target(target=str(folder)).problems
    assert f"{part.name}: verdicts.jsonl: " in problem
    assert "changed since it was sealed" in problem
    spread = tmp_path / "spread"
    shutil.copytree(plain.path, spread)
    stages.judge(spread, "answer", shards=3)
    assert check_seals(spread).problems == ()
    merge_run(MergeOptions(run=spread), RunContext())
    assert check_seals(spread).problems == ()


def test_a_dry_run_of_judging_tells_what_shards_will_take(
    plain: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = ["judge", "--judge", "gpt-4o-mini", "--judge", "rules", "--run", str(plain.path),
             "--shards", "6", "--on", "local:3", "--dry-run"]  # fmt: skip
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["result"]["runs"]
    assert (found["foreseen"]["workers"], found["foreseen"]["shards"]) == (3, 6)
    assert found["estimate"]["gpt-4o-mini"]["calls"] == 24
    told = CliRunner().invoke(app, words).stdout
    assert "shards         6, 3 at once on local:3" in told
    assert not shards.is_sharded(plain.path)


def test_the_viewer_tells_how_far_shards_are(sharded: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(sharded.path, folder)
    run = Run.open(folder)
    growing = GrowingIndex(lambda: [run])
    (still,) = run_status(growing)["growing"]
    assert still["shards"] is None
    attempt = begin_attempt(folder, 2)
    (grows,) = run_status(growing)["growing"]
    assert grows["shards"] == "4/5 shards · 1 running"
    attempt.end_work(None)
    (ended,) = run_status(growing)["growing"]
    assert ended["shards"] is None


def test_a_finished_run_is_resumed_without_work(sharded: Run) -> None:
    before = sorted(os.listdir(sharded.path / "shards"))
    result = stages.build_result(run=sharded.path)
    assert result.built is not None
    assert (result.built.already_there, result.built.jobs.done) == (24, 0)
    assert sorted(os.listdir(sharded.path / "shards")) == before
    with pytest.raises(RunError, match=r"--shards 7: .* has 5 shards; expected 5"):
        stages.build(run=sharded.path, shards=7)


def test_merged_it_is_one_folder(tmp_path: Path, plain: Run) -> None:
    run = built(tmp_path / "run", spread=ShardOptions(shards=3))
    stages.judge(run.path, "rules")
    done = merge_run(MergeOptions(run=run.path), RunContext())
    assert done.records["conversations.jsonl"] == 24
    assert not (run.path / "shards").exists()
    assert said(run.path) == said(plain.path)
    assert scores(run) == scores(plain)
    with pytest.raises(RunError, match="found no shards"):
        merge_run(MergeOptions(run=run.path), RunContext())


def test_a_run_under_way_is_spread_with_its_journal(tmp_path: Path, plain: Run) -> None:
    """Conversations, verdicts and replies of unfinished ones go to their shard; what was paid for
    is not paid again."""
    run = built(tmp_path / "run")
    file = run.conversations_file
    kept = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(kept[:-6]))  # as if killed before six records were written
    result = stages.build_result(run=run.path, shards=4)
    assert result.built is not None
    assert (result.built.already_there, result.built.jobs.done) == (18, 6)
    assert said(run.path) == said(plain.path)
    written = [
        Journal(folder / "calls.jsonl") for folder in shards.shard_folders(run.path).values()
    ]
    replies = sum(journal.load_calls() for journal in written)
    assert replies == Journal(plain.calls_file).load_calls()  # none twice: all were replayed


def test_failed_conversations_are_tried_again(tmp_path: Path) -> None:
    run = built(tmp_path / "run", spread=ShardOptions(shards=4))
    folder = next(
        f for f in shards.shard_folders(run.path).values() if (f / "calls.jsonl").exists()
    )
    lines = [json.loads(line) for line in (folder / "conversations.jsonl").open()]
    lines[0] |= {"failure": {"kind": "ModelError", "message": "gone"}, "stop": None}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "conversations.jsonl").write_text(text)
    result = stages.build_result(run=run.path)
    assert result.built is not None
    assert (result.built.already_there, result.built.jobs.done, result.built.failed) == (23, 1, 0)


def test_what_lies_in_a_shard_from_elsewhere_is_data_with_bounds(tmp_path: Path) -> None:
    run = built(tmp_path / "run", spread=ShardOptions(shards=3))
    space = run.path / "shards"
    for name in ("99999.1", "00001.9999999", "x.1", "00002.-1", "../00001.2", "00001.1e3"):
        (space / name.replace("/", "_")).mkdir()  # names that no shard of this run has
    assert len(list(run.conversations())) == 24
    (space / "00001.7").symlink_to(tmp_path)  # leads out of the run
    with pytest.raises(RunError, match="found a link or no folder; expected the shard's own"):
        list(run.conversations())
    (space / "00001.7").unlink()
    newest = shards.shard_folders(run.path)
    for damage in (b"{}", b"{" * 100_000, b'{"process":{"pid":-1}}', b'{"killed":1e400}', b"\xff"):
        (newest[1] / WORKING).write_bytes(damage)
        assert shard_states(run.path).working == {1: None}
        with pytest.raises(RunError, match="is running"):  # nobody knows of whom
            refuse_in_work(run.path, "merging")
    (newest[1] / WORKING).unlink()
    (newest[2] / LEFT).write_bytes(b"\x1b[2J" * 10_000)
    assert len(shard_states(run.path).left[2]) == LONGEST
    shown = CliRunner().invoke(app, ["status", str(run.path)])
    assert shown.exit_code == 0
    assert "\x1b[2J" not in shown.output
    (newest[2] / LEFT).unlink()
    for wrong in ('{"count": 1000000000}', '{"count": 3, "limits": {"1": {"usd": -1}}}'):
        (space / "plan.json").write_text(wrong)
        with pytest.raises(RunError, match=r"plan.json: (count|limits)"):
            list(run.conversations())


def test_a_conversation_that_stands_in_two_shards_is_refused(tmp_path: Path) -> None:
    run = built(tmp_path / "run", spread=ShardOptions(shards=3))
    one, two = (f for f in list(shards.shard_folders(run.path).values())[:2])
    line = (one / "conversations.jsonl").read_bytes().splitlines(keepends=True)[0]
    stolen = json.loads(line) | {"key": "other#0"}
    with (two / "conversations.jsonl").open("a") as file:
        file.write(json.dumps(stolen) + "\n")
    with pytest.raises(RunError, match="conversation_id"):
        list(run.conversations())


def as_of_0_1(run: Path) -> None:
    """Give the shards of a run the files that convbench 0.1 wrote: a plan of format 1, claims,
    heartbeats, a ledger; one shard taken over from a worker that was killed, one never begun."""
    space = run / "shards"
    tasks = [{"name": "build", "judge": None}]
    plan = {"format": 1, "count": 4, "lease_s": 120.0, "tasks": tasks}
    (space / "plan.json").write_text(json.dumps(plan))
    process = {"host": "node1", "machine": "another:1", "pid": 7, "started": "11"}
    entry = {"worker": "node1-7-aa", "process": process, "lost": 0, "why": None}
    for name in ("claims", "workers", "ledger", "logs"):
        (space / name).mkdir()
    for index in range(3):
        held = entry | {"kind": "held", "done": []}
        freed = entry | {"kind": "free", "done": ["build"]}
        (space / "claims" / f"{index:05}.1").write_text(json.dumps(held))
        (space / "claims" / f"{index:05}.2").write_text(json.dumps(freed))
    (space / "workers" / "node1-7-aa").write_text('{"beat": 4, "doing": "ended"}')
    (space / "ledger" / "000000000003").write_text('{"cap_usd": 1.0, "spent_usd": 0.2}')
    shutil.copytree(space / "00002.0", space / "00002.2")
    lines = (space / "00002.0" / "conversations.jsonl").read_bytes().splitlines(keepends=True)
    (space / "00002.0" / "conversations.jsonl").write_bytes(b"".join(lines[:1]) + b'{"torn')


def test_a_sharded_run_of_0_1_is_read_resumed_and_merged(tmp_path: Path, plain: Run) -> None:
    run = built(tmp_path / "run", spread=ShardOptions(shards=4))
    as_of_0_1(run.path)
    whole_run = said(run.path)
    assert whole_run == said(plain.path)
    (last,) = [
        folder for folder in shards.shard_folders(run.path).values() if folder.name == "00002.2"
    ]
    file = last / "conversations.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + lines[-1][:50])  # killed while it wrote
    assert len(list(run.conversations())) == 2 * TASKS - 1
    result = stages.build_result(run=run.path)
    assert result.built is not None
    assert (result.built.already_there, result.built.jobs.done) == (2 * TASKS - 1, 1)
    assert said(run.path) == whole_run
    assert shards.read_plan(run.path).format == 2
    done = merge_run(MergeOptions(run=run.path), RunContext())
    assert done.records["conversations.jsonl"] == 2 * TASKS
    assert said(run.path) == whole_run
    assert not (run.path / "shards").exists()


def test_a_shard_that_was_killed_is_merged_once(tmp_path: Path, plain: Run) -> None:
    """What a killed process left counts as far as its last whole record; what it was followed by
    counts in its place, not beside it."""
    run = built(tmp_path / "run", spread=ShardOptions(shards=4))
    attempt = begin_attempt(run.path, 1)
    dead = ShardWorker(process=this_process().model_copy(update={"started": "1"}))
    (attempt.folder / WORKING).write_text(dead.model_dump_json())
    with (attempt.folder / "conversations.jsonl").open("ab") as file:
        file.write(b'{"torn')
    begin_attempt(run.path, 1).end_work(None)
    assert {folder.name for folder in run.path.glob("shards/00001.*")} == {"00001.0", "00001.1"}
    assert said(run.path) == said(plain.path)
    assert (
        merge_run(MergeOptions(run=run.path), RunContext()).records["conversations.jsonl"]
        == 2 * TASKS
    )
    assert said(run.path) == said(plain.path)


def test_a_shard_by_itself_is_an_ordinary_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="expected --run DIR of a run with shards"):
        stages.build("demo", run=tmp_path / "none", shard="0/2")
    run = built(tmp_path / "run", spread=ShardOptions(shards=3))
    with pytest.raises(RunError, match=r"--shard 0/2: .* has 3 shards; expected --shard 0/3"):
        stages.build(run=run.path, shard="0/2")
    for index in range(3):
        (done,) = stages.judge_result(run.path, "rules", shard=f"{index}/3").summaries
        assert (
            done.jobs.done
            == len(list(Run.open(shards.attempt_folder(run.path, index, 0)).verdicts()))
            > 0
        )
    assert len(list(run.verdicts())) == 2 * TASKS
    again = stages.judge_result(run.path, "rules")
    assert [(one.jobs.done, one.already_scored) for one in again.summaries] == [(0, 2 * TASKS)]
