"""Parts of a question set in runs of their own, joined again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import convbench
from convbench.errors import RunError, SpecError, UsageError
from convbench.store import Run
from convbench.store.merge import merge_runs, shard_of
from tests.helpers.cli import convbench as typed

BUILD = {"tasks": 12, "samples": 2, "temperatures": [0.5], "quiet": True}


def build(folder: Path, **more: object) -> Run:
    made = convbench.build("pocket", model="scripted:policy", run=folder, **BUILD, **more)
    return Run.open(made.path)


def records(run: Run, name: str) -> list[bytes]:
    return sorted((run.path / name).read_bytes().splitlines())


def said(run: Run) -> dict[str, list[str]]:
    return {c.key: [str(turn.content) for turn in c.turns] for c in run.conversations()}


def test_merge_joins_the_parts_to_what_one_build_gives(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole")
    parts = [build(tmp_path / f"part-{n}", shard=f"{n}/3") for n in range(3)]
    for part in parts:
        convbench.judge(part.path, "rules")
        for example in part.examples.values():
            assert shard_of(example.group_id, 3) == parts.index(part)
    merged = merge_runs(parts, tmp_path / "merged")
    assert said(merged) == said(whole)
    assert merged.manifest.fingerprints == whole.manifest.fingerprints
    assert "shard" not in merged.manifest.extra
    for name in ("conversations.jsonl", "verdicts.jsonl"):
        assert records(merged, name) == sorted(
            line for part in parts for line in records(part, name)
        )
    assert len(merged.judge_specs()) == 1
    resumed = typed(tmp_path, "build", "--run", "merged")
    assert resumed.code == 0
    assert said(Run.open(merged.path)) == said(whole)


def test_merge_command_names_what_it_joined(tmp_path: Path) -> None:
    for n in range(2):
        build(tmp_path / f"part-{n}", shard=f"{n}/2")
    done = typed(tmp_path, "merge", "part-0", "part-1", "--run", "merged")
    assert done.code == 0, done.err
    assert "2 runs: 12 questions, 24 conversations" in done.out


def test_merge_refuses_other_specs_and_the_same_conversations(tmp_path: Path) -> None:
    one, other = build(tmp_path / "one", shard="0/2"), build(tmp_path / "other", seed=1)
    with pytest.raises(RunError, match=r"other: its specs differs from that of .*one"):
        merge_runs([one, other], tmp_path / "merged")
    with pytest.raises(RunError, match=r"whole: found conversation .* again"):
        merge_runs([one, build(tmp_path / "whole")], tmp_path / "merged")
    with pytest.raises(RunError, match="exists already"):
        merge_runs([one], tmp_path / "other")
    assert not (tmp_path / "merged").exists()


def test_build_refuses_a_part_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected I/N"):
        build(tmp_path / "run", shard="3/3")
    with pytest.raises(SpecError, match="none of the 12 questions is in this part"):
        build(tmp_path / "run", shard="77777/99999")
    run = build(tmp_path / "run", shard="0/2")
    again = typed(tmp_path, "build", "--run", "run", "--shard", "1/2")
    assert "has part 0/2; expected the same" in again.error
    assert json.loads((run.path / "run.json").read_text())["extra"]["shard"] == "0/2"
