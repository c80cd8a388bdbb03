"""The discount through its rooms: a played talk, its judge, the metric that learners take."""

from __future__ import annotations

import asyncio

import pytest

from convbench.judges.dispatch import judge_conversation
from convbench.judges.resolve import resolve_judge
from convbench.rewards import conversation_reward
from convbench.schema import Reward
from convbench.views import asking_turns, policy_turns
from tests.helpers.table import QUESTION, asked, protocol_of

ADAPTIVE = protocol_of("clarifying-adaptive")


@pytest.mark.parametrize("questions", [0, 1, 2, 3])
def test_gamma_counts_the_questions_that_were_asked(questions: int) -> None:
    talk = asked(questions)
    assert talk.stop == "marker"
    assert len(policy_turns(ADAPTIVE, talk)) == questions + 2  # the marker and the answer are free
    judge = resolve_judge("rules")
    verdict = asyncio.run(judge_conversation(None, None, judge, talk, QUESTION, ADAPTIVE))
    assert verdict.reward == pytest.approx(verdict.scores["overall"] / 10 * 0.95**questions)


def test_at_the_limit_every_turn_but_the_answer_asked() -> None:
    talk = asked(3, turns=4)
    assert talk.stop == "limit"
    assert len(asking_turns(ADAPTIVE, talk)) == 3


@pytest.mark.parametrize(
    ("name", "turns", "questions"),
    [("reasoning", 3, 0), ("clarifying", 3, 1), ("direct", 1, 0), ("collaboration", 4, 3)],
)
def test_only_what_another_speaker_answers_is_a_question(
    name: str, turns: int, questions: int
) -> None:
    protocol, talk = protocol_of(name), asked(9, turns, name)
    assert len(asking_turns(protocol, talk)) == questions
    rule = Reward(discount=0.5)
    got = conversation_reward(rule, protocol, {"overall": 8.0}, len(asking_turns(protocol, talk)))
    assert got == pytest.approx(0.8 * 0.5**questions)
