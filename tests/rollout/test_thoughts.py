"""What a policy or a grader thinks is never its answer, whichever judge reads it."""

from __future__ import annotations

import asyncio

import pytest

from convbench.engine.caller import Caller, RetryPolicy
from convbench.errors import DataError
from convbench.judges.adaptation.grader import _grade_one, yes_or_no
from convbench.judges.adaptation.learner import Question
from convbench.judges.adaptation.metrics import GRADES
from convbench.judges.render import last_page
from convbench.judges.unit_tests import answer_code
from convbench.models import open_model
from tests.helpers.table import played, protocol_of
from tests.support.chat.replies import Call
from tests.support.provider import Provider

TAGS = ["think", "thinking", "THINK", "thought"]


@pytest.mark.parametrize("tag", TAGS)
def test_a_free_answer_is_not_read_from_a_thought(tag: str) -> None:
    reply = f"<{tag}>The answer is Paris.</{tag}>\nThe answer is Rome."
    for grade in GRADES.values():
        assert grade(reply, ["Rome"], "Which city?") > 0
        assert grade(reply, ["Paris"], "Which city?") == 0


@pytest.mark.parametrize("tag", TAGS)
def test_code_and_pages_are_not_read_from_a_thought(tag: str) -> None:
    def reply(speaker: str, number: int) -> str:
        thought = f"<{tag}>I WANT TO ANSWER: draft <html>draft</html></{tag}>"
        return f"{thought} I WANT TO ANSWER: done <html>done</html>"

    protocol = protocol_of("collaboration")
    talk = played(protocol, turns=1, reply=reply)[1]
    assert answer_code(talk, protocol)[0].startswith("done")
    assert last_page(talk, protocol) == "<html>done</html>"


@pytest.mark.parametrize(
    ("reply", "said"),
    [("Yes", True), ("**No.**", False), ("yes, it does.", True), ("<think>No?</think> Yes.", True),
     ("<think>Yes", None), ("Yes or no? I cannot say.", None), ("It depends.", None), ("", None),
     ("Yesterday", None), ("No. It says Rome, yes, but then Paris.", False)],
)  # fmt: skip
def test_a_graders_reply_is_yes_or_no_or_no_grade(reply: str, said: bool | None) -> None:
    assert yes_or_no(reply) is said


@pytest.mark.parametrize(("replies", "grade"), [(["Hm.", "Yes"], 1.0), (["Hm."] * 3, None)])
def test_a_grader_is_asked_again_over_http(replies: list[str], grade: float | None) -> None:
    sent: list[Call] = []

    def says(call: Call) -> str:
        sent.append(call)
        return replies[len(sent) - 1]

    with Provider(reply=says) as provider:
        model = open_model("openai/grader", api_base=provider.api_base)
        asked = _grade_one(
            Caller(retry=RetryPolicy(tries=1)),
            model,
            Question((), ("Rome",), "Where?"),
            "Rome",
            "quoted",
        )
        if grade is None:
            with pytest.raises(DataError, match="expected yes or no"):
                asyncio.run(asked)
        else:
            assert asyncio.run(asked) == grade
    assert len(sent) == len(replies)
