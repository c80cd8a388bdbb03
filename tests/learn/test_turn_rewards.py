"""Rewards per turn: judged turn by turn, asked again for what is missing, queried, learnt from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog, rewards
from convbench.errors import SpecError, TrainError
from convbench.judges.resolve import resolve_judge
from convbench.learn import launch, weights
from convbench.learn.job import Job
from convbench.learn.rows import training_rows
from convbench.learn.select import select
from convbench.schema import JudgeSpec, ProtocolSpec, Reward, turn_scores
from convbench.schema.recipe import Data, Weighting
from convbench.store.query import run_query
from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.support.provider import Plan, Provider

LABELS = (
    "Accuracy", "Reasoning ability", "Comprehensiveness", "Pedagogical value",
    "Confidence calibration", "Overall",
)  # fmt: skip


def rubric(score: float) -> str:
    """A judge's reply with one score throughout."""
    return "\n\n".join(f"{label}: {score:g}\nBecause of turn." for label in LABELS)


def talks(folder: Path) -> Run:
    """A run of one question, three conversations of two policy turns, unjudged."""
    items = [tiny.conversation("q0", i, [f"FIRST{i}", f"SECOND{i}"]) for i in range(3)]
    return tiny.make_run(folder, [(item, []) for item in items], [tiny.example("q0")])


def said(body: Any) -> str:
    """What the judge was shown."""
    return str(body["messages"][1]["content"])


def by_text(call: Any) -> str:
    """Conversation i: 2 + 3i for the first turn, 8 - 3i for the whole conversation."""
    shown = call.messages[1][1]
    number = next(i for i in range(3) if f"FIRST{i}" in shown)
    return rubric(8 - 3 * number if f"SECOND{number}" in shown else 2 + 3 * number)


def judged(run: Run, provider: Provider, *sets: str) -> None:
    """Judge with the shipped rubric for turns."""
    stages.judge(run.path, "rubric-turns@openai/judge", set=sets, api_base=provider.api_base)


def test_every_turn_is_judged_up_to_this_point_and_queried(tmp_path: Path) -> None:
    run = talks(tmp_path / "run")
    with Provider(Plan(keep_requests=50), reply=by_text) as provider:
        judged(run, provider)
        asked = [said(body) for body in provider.requests]
    assert len(asked) == 6
    assert sum("SECOND" in text for text in asked) == 3, "the first turn's judge sees no later one"
    sql = "select turn_index, overall, reward from turn_verdicts order by conversation_id, 1"
    assert run_query(sql, [run]).rows == [
        (1, 2.0, 0.2), (3, 8.0, 0.8), (1, 5.0, 0.5), (3, 5.0, 0.5), (1, 8.0, 0.8), (3, 2.0, 0.2),
    ]  # fmt: skip
    whole = run_query("select overall, reward, attempts from verdicts order by 1", [run]).rows
    assert whole == [(5.0, pytest.approx(0.5), 2)] * 3


def test_a_turn_without_a_score_is_asked_again_alone(tmp_path: Path) -> None:
    """Three malformed replies fail one turn; the next `judge` asks for it and nothing else."""
    run = talks(tmp_path / "run")
    broken = True

    def reply(call: Any) -> str:
        text = by_text(call)
        return "Overall: 11" if broken and "SECOND1" in call.messages[1][1] else text

    with Provider(Plan(keep_requests=50), reply=reply) as provider:
        judged(run, provider)
        failed = [v for v in run.verdicts() if v.failure is not None]
        assert [v.conversation_id for v in failed] == ["run-q0-1"]
        assert failed[0].failure is not None
        assert "turn 3" in failed[0].failure.message
        assert failed[0].reward is None
        assert failed[0].scores == {}
        assert [one.turn for one in turn_scores(failed[0])] == [1]
        assert run_query("select count(*) from turn_verdicts", [run]).rows == [(4,)]
        broken, before = False, len(provider.requests)
        judged(run, provider)
        assert [("SECOND1" in said(body)) for body in list(provider.requests)[before:]] == [True]
    newest = {v.conversation_id: v for v in run.verdicts()}["run-q0-1"]
    assert newest.reward == pytest.approx(0.5)
    assert [one.turn for one in turn_scores(newest)] == [1, 3]
    assert newest.attempts == 1 + 3 + 1


@pytest.mark.parametrize(
    ("together", "gamma", "questions", "expected"),
    [
        ("mean", None, 0, 0.5), ("sum", None, 0, 1.5), ("last", None, 0, 0.9),
        ("discount", 0.5, 2, 0.1 + 0.5 * 0.5 + 0.25 * 0.9),
        ("mean", 0.5, 2, 0.125), ("last", 0.5, 1, 0.45),
    ],
)  # fmt: skip
def test_turns_together(
    together: Any, gamma: float | None, questions: int, expected: float
) -> None:
    rule = Reward(together=together, discount=gamma)
    turns = [{"overall": value} for value in (1.0, 5.0, 9.0)]
    protocol = catalog.load_spec(ProtocolSpec, "protocols", "reasoning")
    assert rewards.turns_reward(rule, protocol, turns, questions) == pytest.approx(expected)


def test_judges_of_old_keep_their_fingerprints() -> None:
    spec = catalog.load_spec(JudgeSpec, "judges", "rubric")
    kept = spec.model_dump(mode="json")
    assert "per" not in kept
    assert "together" not in kept["reward"]
    plain, turns = (resolve_judge(f"{name}@openai/x") for name in ("rubric", "rubric-turns"))
    assert plain.fingerprint != turns.fingerprint
    with pytest.raises(SpecError, match="turn needs kind rubric or rules"):
        resolve_judge("unit-tests", sets={"per": "turn"})


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run judged turn by turn by a function, its model a tiny one."""
    folder = tmp_path_factory.mktemp("turns")
    model = tiny.save_model(folder / "model")
    run = tiny.make_run(
        folder / "run", [(tiny.conversation("q0", i, said), []) for i, said in enumerate(TALKS)],
        [tiny.example("q0")], model=f"local:{model}",
    )  # fmt: skip
    with Provider(Plan(), reply=by_text) as provider:
        judged(run, provider)
    return run, model


TALKS = (["FIRST0", "SECOND0"], ["FIRST1", "SECOND1"], ["FIRST2", "SECOND2"])


def test_swift_weighs_each_turn_by_its_own_standardised_reward(learnt: tuple[Run, Path]) -> None:
    """Turn 1 earned .2, .5, .8 and turn 2 .8, .5, .2: weights -1, 0, 1 and 1, 0, -1."""
    run, _ = learnt
    selection = select(run, Data())
    found = weights.weigh_swift(selection, Weighting(reward="turn"))
    assert found.by_turn == {
        f"run-q0-{i}": (pytest.approx(i - 1), pytest.approx(1 - i)) for i in range(3)
    }
    refit = weights.weigh_refit(selection, Weighting(reward="turn"))
    assert refit.by_turn["run-q0-0"] == (pytest.approx(0.2), pytest.approx(0.8))
    with pytest.raises(TrainError, match="selects conversations, not turns"):
        weights.weigh_star_gate(selection, Weighting(reward="turn"))
    with pytest.raises(TrainError, match="swift: within every task"):
        weights.weigh_swift(selection, Weighting())
    with pytest.raises(TrainError, match="only those of their turns differ"):
        weights.weigh_refit(selection, Weighting())


def test_each_row_has_its_turns_weight(learnt: tuple[Run, Path], tmp_path: Path) -> None:
    run, model = learnt
    sets = {"weighting.reward": "turn", "data.unit": "turn"}
    job = Job.from_file(tiny.resolved(tmp_path / "job", "swift", run, model, **sets))
    found = launch.load_trainer(launch.locate_trainer("swift")).data(job)
    rows = training_rows(found, job.chat, unit="turn").rows
    texts = [job.chat.tokenizer.decode(row.tokens.ids) for row in rows]
    assert [round(row.weight) for row in rows] == [-1, 1, 0, 0, 1, -1]
    assert [("SECOND" in text) for text in texts] == [False, True] * 3
    with pytest.raises(TrainError, match=r"data\.unit: found conversation.*expected turn"):
        training_rows(found, job.chat, unit="conversation")
    module = launch.load_trainer(launch.locate_trainer("swift"))
    module.fit(job, found)
    assert json.loads((job.folder / "training.json").read_text())["counts"]["rows"] == 6


def test_a_judge_of_conversations_has_no_rewards_of_turns(tmp_path: Path) -> None:
    selection = select(tiny.judged_run(tmp_path / "run"), Data())
    with pytest.raises(TrainError, match=r"found no rewards of turns.*judge\.per=turn"):
        weights.weigh_swift(selection, Weighting(reward="turn"))


def test_a_function_judges_turns_too(tmp_path: Path) -> None:
    run = talks(tmp_path / "run")
    stages.judge(run.path, "rules", set=("judge.per=turn",))
    assert run_query("select count(*), count(reward) from turn_verdicts", [run]).rows == [(6, 6)]


@pytest.mark.parametrize(
    "turns",
    [
        "turns", {"turn": 1}, [{"turn": "x", "scores": 3, "reward": "much"}], [[]], [None],
        [{"turn": 1, "scores": {"overall": 1e400}, "reward": 0.1}], [{"turn": -1}],
    ],
)  # fmt: skip
def test_what_is_no_score_of_a_turn_counts_as_none(tmp_path: Path, turns: Any) -> None:
    """In a set that somebody else made."""
    item = tiny.conversation("q0", 0, ["a", "b"])
    told = tiny.verdict(item, 0.5).model_copy(update={"details": {"turns": turns}})
    run = tiny.make_run(tmp_path / "run", [(item, [told])], [tiny.example("q0")])
    (read,) = run.verdicts()
    assert turn_scores(read) == ()
    rows = run_query("select turn_index, overall, reward from turn_verdicts", [run]).rows
    assert all(row[2] is None or row[0] is not None for row in rows)


def test_a_recipe_that_weighs_no_turns_refuses_to(tmp_path: Path) -> None:
    run = tiny.judged_run(tmp_path / "run", f"local:{tiny.save_model(tmp_path / 'model')}")
    with pytest.raises(TrainError, match=r"dpo.*this recipe does not weight turns"):
        stages.train("dpo", run.path, dry_run=True, set=("weighting.reward=turn",))
