"""Pairs of trajectories, the critic's rows, ranking: what is shown to whom."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from convbench.catalog import load_spec
from convbench.errors import TrainError
from convbench.learn.pairs import PolicyReply
from convbench.learn.select import Selection, select
from convbench.learn.sweet import candidates
from convbench.learn.sweet.pairs import (
    Candidate,
    SweetArgs,
    critic_recipe,
    critic_rows,
    is_held,
    policy_pairs,
    ranked_pairs,
    trajectory_pairs,
)
from convbench.learn.tokens import ChatTokens
from convbench.models.scripted import open_scripted
from convbench.rollout.plan import sample_candidate
from convbench.schema import Completion, Message, Sampling
from convbench.schema.recipe import Data, Recipe
from convbench.views import messages_before
from tests.helpers.collaboration import SENTINEL, judged_run, logged, protocol
from tests.helpers.tiny import tokenizer

ALL = SweetArgs(held_out=0)


def selection(tmp_path: Path, *told: tuple[str, list[str], float]) -> Selection:
    return select(judged_run(tmp_path / "run", told), Data())


def names(found: object) -> list[tuple[int, int]]:
    return [(a.conversation.sample, b.conversation.sample) for a, b in found.items]  # type: ignore[attr-defined]


def test_backend_pairs_best_against_each_lower_of_solved_tasks(tmp_path: Path) -> None:
    made = selection(
        tmp_path,
        ("solved", ["a"], 0.5), ("solved", ["b"], 1.0), ("solved", ["c"], 0.2),
        ("unsolved", ["a"], 0.9), ("unsolved", ["b"], 0.1),
        ("even", ["a"], 1.0), ("even", ["b"], 1.0),
    )  # fmt: skip
    found = trajectory_pairs(made, ALL)
    assert names(found) == [(1, 0), (1, 2)]
    assert found.skipped == {"tasks without a pair": 2}


def test_one_of_several_best_is_drawn(tmp_path: Path) -> None:
    """By the rule of ties, as for other learners; how many tasks tie is counted."""
    told = [(f"q{i}", [w], r) for i in range(12) for w, r in (("a", 1.0), ("b", 1.0), ("c", 0.0))]
    made = selection(tmp_path, *told, ("sure", ["a"], 1.0), ("sure", ["b"], 0.0))
    drawn = trajectory_pairs(made, ALL)
    assert {better for better, _ in names(drawn)} == {0, 1}, "not always the first"
    assert len(drawn.items) == 13
    assert drawn.ties is not None
    assert (drawn.ties.tied, drawn.ties.tasks) == (12, 13)
    assert len(trajectory_pairs(made, ALL, "all").items) == 25
    assert len(trajectory_pairs(made, ALL, "drop").items) == 1
    assert names(trajectory_pairs(made, ALL)) == names(drawn)


def test_frontend_pairs_all_that_differ_by_the_gap(tmp_path: Path) -> None:
    made = selection(tmp_path, ("p", ["a"], 0.5), ("p", ["b"], 0.6), ("p", ["c"], 0.69))
    found = trajectory_pairs(made, SweetArgs(held_out=0, select="gap", gap=0.1))
    assert names(found) == [(1, 0), (2, 0)]
    with pytest.raises(TrainError, match="no pair of trajectories"):
        trajectory_pairs(made, SweetArgs(held_out=0, select="gap", gap=0.5))


def test_held_out_tasks_do_not_train(tmp_path: Path) -> None:
    told = [(f"q{i}", [w], r) for i in range(40) for w, r in (("a", 1.0), ("b", 0.0))]
    found = trajectory_pairs(selection(tmp_path, *told), SweetArgs(held_out=0.25))
    trained = {a.task for a, _ in found.items}
    held = {a.task for a, _ in found.held}
    assert len(trained) + len(held) == 40
    assert not trained & held
    assert all(is_held(name, 0.25) for name in held)
    assert 3 <= len(held) <= 20


@pytest.mark.parametrize("style", ["llama-3.1", "gemma"])
def test_the_hidden_text_stands_once_in_every_critic_row(style: str) -> None:
    chat = ChatTokens(tokenizer(style))
    item = logged("q", 0, ["first question?", "second question?", "I WANT TO ANSWER: x"], 1.0)
    rows = critic_rows(protocol(), item, chat, ALL)
    for row in rows:
        text = chat.tokenizer.decode(row.ids)
        assert text.count(SENTINEL) == 1
        assert text.index(SENTINEL) < text.index("make q")
        said = chat.tokenizer.decode(
            [t for t, mark in zip(row.ids, row.turns, strict=True) if mark >= 0]
        )
        assert SENTINEL not in said
    assert sorted({mark for row in rows for mark in row.turns}) == [-1, 0, 1, 2]
    bare = critic_rows(protocol(), item, chat, SweetArgs(hidden=()))
    assert all(SENTINEL not in chat.tokenizer.decode(row.ids) for row in bare)


def test_turn_numbers_follow_the_replies() -> None:
    chat = ChatTokens(tokenizer())
    item = logged("q", 0, ["one?", "I WANT TO ANSWER: two"], 1.0)
    [row] = critic_rows(protocol(), item, chat, ALL)
    for number, text in enumerate(["one?", "I WANT TO ANSWER: two"]):
        ids = [t for t, mark in zip(row.ids, row.turns, strict=True) if mark == number]
        assert chat.tokenizer.decode(ids[:-1]) == text
        assert ids[-1] == chat.end_of_turn


def test_pairs_come_from_the_halves() -> None:
    made = [Candidate(PolicyReply(f"c{i}", False), float(i)) for i in range(16)]
    random.Random(0).shuffle(made)
    found = ranked_pairs(made, 200, random.Random(1))
    assert {c.advantage for c, _ in found} == set(range(8, 16))
    assert {c.advantage for _, c in found} == set(range(8))


def test_stage_2_never_sees_the_hidden_text(tmp_path: Path) -> None:
    made = selection(tmp_path, ("q", ["one?", "I WANT TO ANSWER: x"], 1.0), ("q", ["y"], 0.0))
    turns = {
        ("run-q-0", turn, 0): [Candidate(PolicyReply(f"c{i}", False), float(i)) for i in range(4)]
        for turn in (1, 3)
    }
    pairs = policy_pairs(made, turns, ALL, 0)
    assert len(pairs.items) == 8
    assert SENTINEL not in str([pair.messages for pair in pairs.items])
    [talk] = [i.conversation for i in made.logged if i.conversation.sample == 0 and i.reward == 1]
    for pair in pairs.items[4:]:
        assert list(pair.messages) == messages_before(protocol(), talk, "assistant", 3)
        assert pair.chosen.text > pair.rejected.text
    with pytest.raises(TrainError, match="no pair of candidates"):
        policy_pairs(
            made, {("run-q-0", 1, 0): [Candidate(PolicyReply("same", False), 1.0)] * 4}, ALL, 0
        )


class Recorder:
    """Answers with a number and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[Message], Sampling]] = []

    async def complete(
        self, model: object, messages: list[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        self.asked.append((key, list(messages), sampling))
        return Completion(str(len(self.asked)))


async def _candidates(made: Selection) -> Recorder:
    caller = Recorder()
    talk = made.logged[0].conversation
    for turn in (1, 3):
        for number in range(2):
            await sample_candidate(
                made.run.manifest,
                talk,
                turn,
                number,
                open_scripted("echo"),
                caller,
                temperature=1.0,
            )
    return caller


def test_candidates_are_asked_for_with_what_the_policy_saw(tmp_path: Path) -> None:
    import asyncio

    made = selection(tmp_path, ("q", ["one?", "I WANT TO ANSWER: x"], 1.0), ("q", ["y"], 0.0))
    asked = asyncio.run(_candidates(made)).asked
    talk = made.logged[0].conversation
    assert [key for key, _, _ in asked] == ["q#0~1.0@1", "q#0~1.1@1", "q#0~3.0@3", "q#0~3.1@3"]
    assert asked[2][1] == messages_before(protocol(), talk, "assistant", 3)
    assert SENTINEL not in str(asked)
    assert len({sampling.seed for _, _, sampling in asked}) == 4


@pytest.mark.parametrize(("model", "reference"), [
    ("local:pocket", "local:pocket"), ("local:pocket-grids", "local:pocket-grids"),
    ("/some/folder", "local:/some/folder"), ("org/name", "local:org/name"),
    ("scripted:echo", "scripted:echo"), (None, "scripted:echo"),
])  # fmt: skip
def test_the_model_whose_candidates_are_ranked_is_named_once(
    model: str | None, reference: str, tmp_path: Path
) -> None:
    run = judged_run(tmp_path / "run", [("q", ["a"], 1.0)])
    recipe = load_spec(Recipe, "recipes", "sweet").model_copy(update={"model": model})
    assert candidates._starting_model(run, recipe) == reference


def test_recipes_hold_the_published_values() -> None:
    sweet = load_spec(Recipe, "recipes", "sweet")
    settings = SweetArgs.from_args(sweet.args, "sweet")
    assert (settings.candidates, settings.pairs, settings.beta, settings.nll) == (16, 4, 0.1, 0.01)
    assert (settings.critic_nll, settings.share, settings.normalize) == (0, 0.1, "turn")
    assert (sweet.fit.betas, sweet.fit.floor, settings.informed_reference) == (
        (0.9, 0.95),
        0.1,
        True,
    )
    assert (sweet.fit.learning_rate, sweet.fit.epochs, settings.critic) == (2e-7, 1, {"epochs": 4})
    assert sweet.fit.batch == 8
    assert (sweet.pairing.beta, sweet.fit.warmup_steps, sweet.data.max_length) == (0.1, 0.03, 16384)
    plain = SweetArgs.from_args(load_spec(Recipe, "recipes", "mt-dpo").args, "mt-dpo")
    assert (plain.hidden, plain.normalize) == ((), False)
    assert load_spec(Recipe, "recipes", "rft").weighting.threshold == 1.0
    with pytest.raises(TrainError, match=r"recipe 'x': args\.bet: Extra inputs"):
        SweetArgs.from_args({"bet": 1}, "x")
    wrong = SweetArgs(critic={"epochs": "many"})
    with pytest.raises(TrainError, match=r"recipe 'sweet': args.critic.epochs: Input should be"):
        critic_recipe(sweet, wrong)
