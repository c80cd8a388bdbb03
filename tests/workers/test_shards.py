"""A run in shards is the run: the same set, read whole by every command, and merged into one."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convbench.cli import app
from convbench.commands.build import build
from convbench.commands.export import export
from convbench.commands.judge import judge
from convbench.commands.merge import merge
from convbench.commands.show import show_conversation
from convbench.commands.verify import verify
from convbench.engine.journal import Journal
from convbench.errors import ConvbenchError, RunError
from convbench.options.build import BuildOptions
from convbench.options.judge import JudgeOptions
from convbench.options.look import VerifyOptions
from convbench.options.shared import CallOptions, Shape
from convbench.options.spread import MergeOptions, Spread
from convbench.publish.folder import lay_out
from convbench.report.experiment.cost import _of_cell
from convbench.store import Run, shards
from convbench.store.overview import overview
from convbench.store.query import query
from convbench.store.seal import check_seals
from convbench.view.growing import Growing
from convbench.view.index import build_index
from convbench.view.pulse import pulse

from .crew import said

QUIET = CallOptions(quiet=True)
TASKS = 12


def built(run: Path, **more: Any) -> Run:
    options = BuildOptions(
        task="demo", tasks=TASKS, model="scripted:policy", run=run, calls=QUIET,
        shape=Shape(samples=2), **more,
    )  # fmt: skip
    result = build(options)
    assert result.built is not None
    assert result.built.jobs.stopped is None
    assert result.built.had == 2 * TASKS
    return Run.open(run)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = built(tmp_path_factory.mktemp("plain") / "run")
    judge(JudgeOptions(judges=("rules",), run=run.path, calls=QUIET))
    return run


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = built(tmp_path_factory.mktemp("sharded") / "run", spread=Spread(shards=5))
    found = judge(JudgeOptions(judges=("rules",), run=run.path, calls=QUIET))
    assert [(one.jobs.done, one.jobs.failed, one.kept) for one in found.judged] == [(24, 0, 0)]
    return run


def scores(run: Run) -> list[Any]:
    keys = {one.conversation_id: one.key for one in run.conversations()}
    return sorted((keys[v.conversation_id], sorted(v.scores.items())) for v in run.verdicts())


def test_it_is_the_same_set(plain: Run, sharded: Run) -> None:
    assert said(sharded.path) == said(plain.path)
    assert scores(sharded) == scores(plain)
    assert not (sharded.path / "conversations.jsonl").exists()
    parts = shards.parts(sharded.path)
    assert len(parts) == 5
    for index, folder in parts.items():  # each an ordinary run, of its groups alone
        alone = Run.open(folder)
        for one in alone.conversations():
            assert shards.shard_of(alone.examples[one.example_id].group_id, 5) == index


def test_every_reader_sees_the_whole(plain: Run, sharded: Run, tmp_path: Path) -> None:
    sql = "select count(*), count(distinct conversation_id), sum(n_turns) from conversations"
    assert query(sql, [sharded]).rows == query(sql, [plain]).rows
    sql = "select judge, count(*), round(avg(overall), 9) from verdicts group by 1"
    assert query(sql, [sharded]).rows == query(sql, [plain]).rows
    assert overview(sharded).conversations == 24
    assert overview(sharded).judges == ("rules",)
    assert _of_cell(sharded, {}).unread == 0
    assert _of_cell(sharded, {}).tokens == _of_cell(plain, {}).tokens > 0
    index = build_index([sharded])
    assert index.total == 24
    name = next(iter(sharded.conversations())).conversation_id
    assert index.conversation(name)[1].conversation_id == name
    shown = show_conversation(name[:12], [sharded.path])
    assert shown is not None
    assert [one.judge for one in shown.verdicts] == ["rules"]
    laid = lay_out(sharded, "me/set", tmp_path / "set", judge="rules")
    assert sum(laid.rows["conversations"].values()) == 24
    export(sharded, "openai", tmp_path / "out")
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.open()]
    assert len(lines) == 24


def test_what_workers_wrote_is_sealed(plain: Run, sharded: Run, tmp_path: Path) -> None:
    """Shard by shard; a byte changed in one is found there. A sealed run that is spread, and one
    that is merged again, have seals that hold."""
    assert [one.problems for one in verify(VerifyOptions(target=str(sharded.path))).checked] == [[]]
    folder = tmp_path / "copy"
    shutil.copytree(sharded.path, folder)
    assert check_seals(folder) == check_seals(sharded.path)
    part = max(shards.parts(folder).values())
    file = part / "verdicts.jsonl"
    data = file.read_bytes()
    assert b'"attempts":1' in data
    file.write_bytes(data.replace(b'"attempts":1', b'"attempts":2', 1))
    (problem,) = verify(VerifyOptions(target=str(folder))).problems
    assert f"{part.name}: verdicts.jsonl: " in problem
    assert "changed since it was sealed" in problem
    spread = tmp_path / "spread"
    shutil.copytree(plain.path, spread)
    judge(JudgeOptions(judges=("answer",), run=spread, calls=QUIET, spread=Spread(shards=3)))
    assert check_seals(spread).problems == ()
    merge(MergeOptions(run=spread))
    assert check_seals(spread).problems == ()


def test_a_dry_run_of_judging_tells_what_workers_will_take(
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
    assert "workers        3 on local:3, 6 shards" in told
    assert not shards.is_sharded(plain.path)


def test_the_viewer_tells_who_works(sharded: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(sharded.path, folder)
    run = Run.open(folder)
    growing = Growing(lambda: [run])
    (still,) = pulse(growing)["growing"]
    assert (still["crew"], still["workers"]) == (None, [])
    said_ = {"doing": "rules", "shard": 2, "shards": 2, "done": 7, "began": time.time() - 7,
             "at": time.time()}  # fmt: skip
    (folder / shards.FOLDER / shards.WORKERS / "node7-11").write_text(json.dumps(said_))
    (found,) = pulse(growing)["growing"]
    assert found["workers"] == ["node7-11: rules shard 2 · 7 done · 1.0/s"]
    assert found["crew"].startswith("5/5 shards · 1 worker · 1.0/s")


def test_a_finished_run_is_resumed_without_work(sharded: Run) -> None:
    before = sorted(os.listdir(sharded.path / "shards" / "claims"))
    result = build(BuildOptions(run=sharded.path, calls=QUIET))
    assert result.built is not None
    assert (result.built.kept, result.built.jobs.done) == (24, 0)
    assert sorted(os.listdir(sharded.path / "shards" / "claims")) == before
    with pytest.raises(RunError, match=r"--shards 7: .* has 5 shards; expected 5"):
        build(BuildOptions(run=sharded.path, calls=QUIET, spread=Spread(shards=7)))


def test_merged_it_is_one_folder(tmp_path: Path, plain: Run) -> None:
    run = built(tmp_path / "run", spread=Spread(shards=3))
    judge(JudgeOptions(judges=("rules",), run=run.path, calls=QUIET))
    done = merge(MergeOptions(run=run.path))
    assert done.records["conversations.jsonl"] == 24
    assert not (run.path / "shards").exists()
    assert said(run.path) == said(plain.path)
    assert scores(run) == scores(plain)
    with pytest.raises(RunError, match="found no shards"):
        merge(MergeOptions(run=run.path))


def test_a_run_under_way_is_spread_with_its_journal(tmp_path: Path, plain: Run) -> None:
    """Conversations, verdicts and replies of unfinished ones go to their shard; what was paid for
    is not paid again."""
    run = built(tmp_path / "run")
    file = run.conversations_file
    kept = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(kept[:-6]))  # as if killed before six records were written
    result = build(BuildOptions(run=run.path, calls=QUIET, spread=Spread(shards=4)))
    assert result.built is not None
    assert (result.built.kept, result.built.jobs.done) == (18, 6)
    assert said(run.path) == said(plain.path)
    written = [Journal(folder / "calls.jsonl") for folder in shards.parts(run.path).values()]
    replies = sum(journal.load() for journal in written)
    assert replies == Journal(plain.calls_file).load()  # none twice: all were replayed


def test_failed_conversations_are_tried_again(tmp_path: Path) -> None:
    run = built(tmp_path / "run", spread=Spread(shards=4))
    folder = next(f for f in shards.parts(run.path).values() if (f / "calls.jsonl").exists())
    lines = [json.loads(line) for line in (folder / "conversations.jsonl").open()]
    lines[0] |= {"failure": {"kind": "ModelError", "message": "gone"}, "stop": None}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "conversations.jsonl").write_text(text)
    result = build(BuildOptions(run=run.path, calls=QUIET))
    assert result.built is not None
    assert (result.built.kept, result.built.jobs.done, result.built.lost) == (23, 1, 0)


def test_what_lies_in_a_shard_from_elsewhere_is_data_with_bounds(tmp_path: Path) -> None:
    run = built(tmp_path / "run", spread=Spread(shards=3))
    space = run.path / "shards"
    for name in ("99999.1", "00001.9999999", "x.1", "00002.-1", "../00001.2", "00001.1e3"):
        (space / name.replace("/", "_")).mkdir()  # names that no shard of this run has
    assert len(list(run.conversations())) == 24
    (space / "workers" / "evil").write_bytes(b'{"beat":' + b"[" * 200_000)
    (space / "workers" / "huge").write_bytes(b" " * 100_000)
    (space / "workers" / "odd").write_text('{"beat":1,"done":-5,"usd":"NaN","doing":"\\u001b[2J"}')
    from convbench.workers.board import look

    seen = {one.name: one for one in look(run).workers}
    assert "evil" not in seen
    assert "huge" not in seen
    assert (seen["odd"].done, seen["odd"].usd, "\x1b" in seen["odd"].doing) == (0, 0.0, False)
    (space / "00001.7").symlink_to(tmp_path)  # leads out of the run
    with pytest.raises(RunError, match="found no folder; expected a shard's own"):
        list(run.conversations())
    (space / "00001.7").unlink()
    newest = max((space / "claims").glob("00001.*"))
    for damage in ('{"kind":"free"}', "{" * 1000, '{"kind":"held","worker":"../../x"}'):
        newest.write_text(damage)
        with pytest.raises(ConvbenchError):
            build(BuildOptions(run=run.path, calls=QUIET, spread=Spread(on="local:1")))
    (space / "plan.json").write_text('{"count": 1000000000}')
    with pytest.raises(RunError, match=r"plan.json: count"):
        list(run.conversations())


def test_a_conversation_that_stands_in_two_shards_is_refused(tmp_path: Path) -> None:
    run = built(tmp_path / "run", spread=Spread(shards=3))
    one, two = (f for f in list(shards.parts(run.path).values())[:2])
    line = (one / "conversations.jsonl").read_bytes().splitlines(keepends=True)[0]
    stolen = json.loads(line) | {"key": "other#0"}
    with (two / "conversations.jsonl").open("a") as file:
        file.write(json.dumps(stolen) + "\n")
    with pytest.raises(RunError, match="conversation_id"):
        list(run.conversations())
