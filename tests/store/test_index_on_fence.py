"""The index and the records, both read, on the runs that the fence asks about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from convbench.judge.pending import unscored
from convbench.judge.resolve import resolve_judge
from convbench.learn.select import collect
from convbench.schema.recipe import Data
from convbench.store import Run, index
from tests.fence.runs import make_runs
from tests.report.test_grades import observations, without_verdicts
from tests.store.test_index import cache, rows_of_conversations, values_of

__all__ = ["cache"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every run of the fence, branches and evaluations too."""
    folder = tmp_path_factory.mktemp("fence")
    make_runs(folder)
    return sorted(path.parent for path in folder.rglob("run.json"))


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_rows_are_what_the_records_say(runs: list[Path]) -> None:
    """Who, how it ended and where it lies; what judges gave; at first use and later."""
    assert len(runs) > 8
    for path in runs:
        run = Run.open(path)
        talks, verdicts = rows_of_conversations(run), values_of(run.verdicts())
        for _ in range(2):
            assert list(run.heads()) == talks, path
            assert values_of(run.verdict_rows()) == verdicts, path
        examples = run.examples.values()
        assert {name: tuple(question) for name, question in run.questions.items()} == {
            one.example_id: (one.split, one.group_id) for one in examples
        }


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_observations_are_those_of_the_texts(runs: list[Path]) -> None:
    """Of a split and all of them, at first use and later; of the large one a split alone."""
    for path in runs:
        run = Run.open(path)
        large = path.name == "log"
        for split in ("test",) if large else ("test", "all"):
            texts = observations(run, split)
            for _ in range(2):
                assert without_verdicts(run, split) == texts, path


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_what_is_pending_and_learnt_is_what_verdicts_say(runs: list[Path]) -> None:
    """By names and rewards, from the records alone."""
    judged, rules = 0, resolve_judge("rules")
    for path in runs:
        run = Run.open(path)
        for name, mark in run.judged_by():
            judged += 1
            newest = [v for v in run.verdicts() if v.fingerprint == mark]
            scored = {v.conversation_id for v in newest if v.failure is None}
            failed = {v.conversation_id: v for v in newest if v.failure is not None}
            ended = [t.conversation_id for t in run.conversations() if t.failure is None]
            pending, count = unscored(run, replace(rules, name=name, fingerprint=mark))
            left = [one for one in ended if one not in scored]
            assert (len(pending), count) == (len(left), len(ended) - len(left))
            assert [pending[one] for one in left] == [failed.get(one) for one in left]
            rewards = {v.conversation_id: v.reward for v in newest if v.judge == name}
            found = collect(run, Data(judge=name, flagged="keep"), split="all")
            assert {item.conversation_id: item.reward for item in found.logged}.items() <= (
                rewards.items()
            )
            large = collect(run, Data(judge=name, flagged="keep"), split="all", large=0)
            assert [(i.conversation, i.reward, i.turns) for i in large.logged] == [
                (i.conversation, i.reward, i.turns) for i in found.logged
            ]
    assert judged > 3


@pytest.mark.exhaustive
def test_every_row_lies_where_it_says(runs: list[Path]) -> None:
    for path in runs:
        run = Run.open(path)
        every = index.Index(index.CONVERSATIONS, run.files("conversations.jsonl")).all_rows()
        assert all(run.read_conversation(*row[:3]).key == row.key for row in every)
