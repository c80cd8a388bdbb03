"""A simulated human that fails: build, plant, review, report, query; two humans, one ranking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.commands.gold import GoldOptions, label_sample
from convbench.errors import ConvbenchError, TrainError
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
from tests.bench.planted import FAULTS, planted
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
    stages.judge(folder, "rules", "simulator")
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


def test_planted_faults_are_found_counted_and_shown(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stages.build(
        "pocket-collaboration",
        tasks=40,
        model=f"{RULE}:guess",
        run=folder,
        samples=1,
        temperatures=(1.0,),
    )
    run, lines, sown = Run.open(folder), [], {}
    for place, talk in enumerate(run.conversations()):
        fault = FAULTS[place] if place < len(FAULTS) else None
        example = run.examples[talk.example_id]
        made = fault and planted(talk, example, run.manifest.protocol, fault, "tuned", 0)
        if made:
            sown[talk.conversation_id] = fault
        lines.append((made or talk).model_dump_json() + "\n")
    assert len(sown) >= 6, sown
    run.conversations_file.write_text("".join(lines))
    stages.judge(folder, "simulator")
    rows = sql(run, "select conversation_id, fault, severity, turn_index, speaker from faults")
    found = {(name, fault) for name, fault, *_ in rows}
    assert set(sown.items()) <= found
    assert {name for name, _ in found} == set(sown), "no other conversation has a fault"
    assert {(turn, who) for *_, turn, who in rows} == {(2, "human")}
    helped = {fault for _, fault, severity, *_ in rows if severity == "critical-helped"}
    assert helped <= {"leaked", "answered"}
    assert helped
    clean = sql(run, "select sum(clean), count(*) from verdicts where judge = 'simulator'")
    assert clean == [(40 - len(sown), 40)]
    (table,) = [
        table
        for part in stages.report(folder, split="all").document.parts
        for table in part.tables
        if table.label == "simulated-human"
    ]
    assert table.rows[0][2].text == "40"
    assert "refused 1" in table.rows[0][-1].text
    with pytest.raises(TrainError, match="found no verdicts"):
        select(run, Data())  # a review is no reward


@pytest.mark.exhaustive
def test_a_ranking_that_flips_between_humans_is_no_win(honest: Run, lied: Run) -> None:
    assert sql(lied, "select distinct fault from faults") == [("changed",)]
    assert sql(honest, "select count(*) from faults") == [(0,)]
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


def test_a_protocol_without_a_simulated_human_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stages.build(
        "pocket",
        tasks=2,
        model=f"{RULE}:guess",
        run=folder,
        samples=1,
        temperatures=(1.0,),
        mode="standard",
    )
    with pytest.raises(ConvbenchError, match="expected a simulated human to review"):
        stages.judge(folder, "simulator")


def test_a_model_is_asked_where_the_rules_found_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP: what it names is kept, beside which judge named it; what is no list of faults of
    the human's own messages is asked again and then gives no review."""
    asked: list[str] = []
    named = '{"faults": [{"fault": "off-task", "message": 1}]}'
    wrong = (
        '{"faults": [{"fault": "rude", "message": 1}]}',
        '{"faults": [{"fault": "refused", "message": 99}]}',
        '{"faults": [], "x": 1}',
        '{"faults": 1}',
        "Fine, I think.",
    )

    def reply(call: Call) -> str:
        asked.append(call.asked)
        return named if len(asked) == 1 else wrong[len(asked) % len(wrong)]

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
        done = stages.judge_result(folder, "simulator@openai/gpt-4o")
    run = Run.open(folder)
    rows = sql(run, "select fault, severity, judge from faults")
    assert [row[0] for row in rows] == ["off-task"]
    assert rows[0][2] == "simulator@openai/gpt-4o"
    assert done.summaries[0].failed_count == 3
    assert len(asked) > 4, "each is asked again"
