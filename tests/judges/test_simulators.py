"""Judges of the other speaker; two simulated humans, one ranking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.commands.gold import GoldOptions, label_sample
from convbench.errors import TrainError
from convbench.judges.gold.labels import keep_labels, read_draws
from convbench.learn.select import select
from convbench.reports.document import Document, Table
from convbench.reports.pairwise import flipped_pairs, section_tournaments, sibling_tournaments
from convbench.reports.plots.points import draw_strengths
from convbench.reports.sections import read_sections
from convbench.reports.simulators import simulator_pairs
from convbench.reports.verdict import section_verdicts
from convbench.schema.gold import GoldLabel
from convbench.schema.recipe import Data
from convbench.store import Run
from convbench.store.query import run_query
from tests.helpers import stages
from tests.support.chat.replies import Call
from tests.support.provider import Provider

RULE = "rule:tests.judges.simulated"


def talks(folder: Path, human: str = "rule:convbench.pocket.speakers:human") -> Run:
    """Return a judged run of a policy that guesses, with an evaluation of one that asks, each
    compared with the other and labelled by people who want the right answer."""
    sets = (f"task.speakers.human={human}",)
    stages.build(
        "pocket-collaboration",
        tasks=184,
        model=f"{RULE}:guess",
        run=folder,
        samples=1,
        temperatures=(1.0,),
        set=sets,
    )
    stages.judge(folder, "rules")
    stages.evaluate(f"{RULE}:ask", folder)
    stages.judge(folder, "pairwise-rules", pairwise=("all", "all"))
    labelled(Run.open(folder))
    return Run.open(folder)


def labelled(run: Run) -> None:
    """Draw some conversations of the two policies; people give 8 where the answer is right, 2 where
    it is wrong, and half a point more or less."""
    label_sample(GoldOptions((str(run.path),), draw=100))
    right = dict(sql(run, "select conversation_id, correct from conversations"))
    right |= dict(sql(run.child_runs()[0], "select conversation_id, correct from conversations"))
    (draw,) = read_draws(run)
    keep_labels(run, [
        GoldLabel(conversation_id=one.conversation_id, rater="Ann", scores={
            "overall": (8.0 if right[one.conversation_id] else 2.0) + (place % 3 - 1) / 2,
        }) for place, one in enumerate(draw.drawn)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return talks(tmp_path_factory.mktemp("honest") / "run")


@pytest.fixture(scope="module")
def lied(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return talks(tmp_path_factory.mktemp("lied") / "run", f"{RULE}:liar")


def sql(run: Run, text: str) -> list[tuple[object, ...]]:
    return run_query(text, [run]).rows


@pytest.mark.exhaustive
def test_a_ranking_that_flips_between_humans_is_no_win(honest: Run, lied: Run) -> None:
    both = read_sections([honest, lied])
    assert [one.simulator for one in both] == [
        "rule:convbench.pocket.speakers:human", "rule:tests.judges.simulated:liar"
    ]  # fmt: skip
    (found,) = simulator_pairs(both)
    row = next(one for one in found.rows if one.measure.key == "accuracy")
    assert row.first.mean > 0.5 > 0 > row.second.mean
    assert row.outcome == "flips"
    assert row.share.value is not None
    assert row.share.value > 1
    (alone,) = section_verdicts(both[0])
    assert alone.ruling.word == "real", "one human alone cannot know"
    (beside,) = section_verdicts(both[0], None, [both[1]])
    assert beside.ruling.word == "undecided"
    assert "the other way with simulator" in beside.ruling.why
    text = json.dumps(str(stages.report(honest.path, lied.path).document))
    assert "there is no win" in text
    page = stages.report(honest.path, lied.path).document
    facts = [part.facts for part in page.parts if "judge rules" in part.title]
    assert len(facts) == 2
    for said in facts:
        assert "is no winner: Accuracy ranks it the other way with simulator" in str(said)


@pytest.mark.exhaustive
def test_what_flips_is_no_win_of_peoples_labels_or_of_duels(honest: Run, lied: Run) -> None:
    """Each human alone names a winner, by labels and by duels; both together name none."""
    for runs, winners, won in (
        ((honest,), ["better"], [True]),
        ((lied,), ["worse"], [True]),
        ((honest, lied), ["undetermined", "undetermined"], [False, False]),
    ):
        paths = tuple(run.path for run in runs)
        gold = tables(stages.report(*paths, gold=True).document, "gold-differences")
        assert [table.rows[0][-1].text for table in gold] == winners
        assert [table.rows[0][-2].text for table in gold] == ["own labels"] * len(runs)
        told = ["the other way with simulator" in str(table.notes) for table in gold]
        assert told == [not one for one in won]
        duels = tables(stages.report(*paths, pairwise=True).document, "pairwise")
        p = [table.rows[0][3].text for table in duels]
        assert [text != "flips" and float(text.strip("<")) < 0.05 for text in p] == won
        told = ["is no win: the ranking flips with simulator" in str(t.notes) for t in duels]
        assert told == [not one for one in won]
    both = read_sections([honest, lied])
    (found,) = section_tournaments(both[0])
    drawn = draw_strengths(
        "two humans",
        found,
        list(flipped_pairs(found, sibling_tournaments(found, both[0], both)).values()),
    )
    assert drawn is not None
    assert "is no win: the ranking flips" in drawn.caption


def tables(page: Document, label: str) -> list[Table]:
    """Return a document's tables of one kind, in order."""
    return [table for part in page.parts for table in part.tables if table.label == label]


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Four conversations that a model scored by `simulator`: the human leaked in the first two."""
    replies = iter([1, 1, 0, 0])

    def reply(call: Call) -> str:
        schema = call.body["response_format"]["json_schema"]["schema"]
        faults = dict.fromkeys(schema["properties"], 0) | {"leaked": next(replies)}
        return json.dumps(
            {
                name: {"score": score, "justification": "So it said."}
                for name, score in faults.items()
            }
        )

    with Provider(reply=reply) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        folder = tmp_path / "run"
        stages.build(
            "pocket-collaboration",
            tasks=4,
            model=f"{RULE}:guess",
            run=folder,
            samples=1,
            temperatures=(1.0,),
        )
        stages.judge(folder, "simulator@openai/gpt-4o", concurrency=1)
    return Run.open(folder)


def test_a_judge_of_the_other_speaker_is_asked_by_schema_and_queried(scored: Run) -> None:
    rows = sql(
        scored, "select avg(leaked), avg(refused) from verdicts where judge like 'simulator%'"
    )
    assert rows == [(0.5, 0.0)]


def test_scores_of_the_other_speaker_are_no_reward(scored: Run) -> None:
    with pytest.raises(TrainError, match="found no verdicts"):
        select(scored, Data())


def test_least_scores_of_the_other_speaker_leave_conversations_out(scored: Run) -> None:
    stages.judge(scored.path, "rules")
    every = select(scored, Data(judge="rules", flagged="keep"))
    data = Data(judge="rules", flagged="keep", least={"simulator": {"leaked": 1}})
    train = {
        row.conversation_id for row, question in scored.joined_rows() if question.split == "train"
    }
    leaked = {
        name
        for name, value in sql(
            scored, "select conversation_id, leaked from verdicts where leaked is not null"
        )
        if value == 1
    }
    kept = select(scored, data)
    assert {one.conversation.conversation_id for one in kept.logged} == leaked & train
    assert len(every.logged) == len(train)
    assert kept.skipped["below data.least"] == len(train - leaked)
