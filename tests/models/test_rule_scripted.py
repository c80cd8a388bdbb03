"""Rules and scripts: pure functions behind the seam."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from convbench.errors import FatalModelError, SpecError
from convbench.models import open_model
from convbench.models.rule import RuleModel
from convbench.schema import Completion, ImagePart, Message, Sampling

QUESTION: list[Message] = [
    {"role": "system", "content": "State 'The answer is X'. Use <thinking></thinking> tags."},
    {"role": "user", "content": "Question: Which one?\nChoices:\nA. one\nB. two\nC. three\n"},
]
ANSWER = re.compile(r"answer is ([A-Z])")
FINAL: Message = {"role": "user", "content": "What is your final answer (A, B, or C)?"}


def shout(messages: list[Message], example: Mapping[str, Any]) -> str:
    return f"{messages[-1]['content']}! {example['answer']}"


async def picture(messages: list[Message], example: Mapping[str, Any]) -> Any:
    return [ImagePart(file="page.png")]


def broken(messages: list[Message], example: Mapping[str, Any]) -> str:
    raise KeyError("told")


def nothing(messages: list[Message], example: Mapping[str, Any]) -> Any:
    return None


def said(ref: str, messages: list[Message], example: dict[str, Any], **more: Any) -> Completion:
    model = open_model(ref)
    bound = model.bind(example)
    return asyncio.run(bound.complete(messages, Sampling(**more), key="q/0/1"))


def test_a_rule_gets_messages_and_the_example_it_is_bound_to() -> None:
    reply = said(f"rule:{__name__}:shout", [{"role": "user", "content": "hey"}], {"answer": "B"})
    assert (reply.content, reply.finish_reason, reply.cost_usd) == ("hey! B", "rule", 0.0)


def test_a_rule_may_be_async_and_answer_with_an_image() -> None:
    reply = said(f"rule:{__name__}:picture", QUESTION, {})
    assert reply.content == (ImagePart(file="page.png"),)


@pytest.mark.parametrize(
    ("name", "line", "stops"),
    [("broken", "KeyError: 'told'", False), ("nothing", "returned NoneType", True)],
)
def test_a_rule_that_fails_says_which_and_how(name: str, line: str, stops: bool) -> None:
    with pytest.raises(FatalModelError, match=line) as caught:
        said(f"rule:{__name__}:{name}", QUESTION, {})
    assert caught.value.stops_run is stops


def test_a_downloaded_rule_may_name_only_our_own_functions() -> None:
    with pytest.raises(SpecError, match="downloaded"):
        RuleModel("rule:os.path:join", downloaded=True)


def test_the_scripted_policy_is_deterministic_and_varied() -> None:
    replies = {seed: said("scripted:policy", [*QUESTION, FINAL], {}, seed=seed).content
               for seed in range(40)}  # fmt: skip
    assert replies == {
        seed: said("scripted:policy", [*QUESTION, FINAL], {}, seed=seed).content
        for seed in range(40)
    }
    tagged = [text for text in replies.values() if "<thinking>" in text]
    assert 10 < len(tagged) < 40
    assert any("<thinking>" in text and "</thinking>" not in text for text in tagged)
    answers = {letter for text in replies.values() for letter in ANSWER.findall(text)}
    assert answers == {"A", "B", "C"}


def test_bound_to_an_example_it_is_right_more_often_than_not_bound() -> None:
    def right(example: dict[str, Any]) -> int:
        texts = [said("scripted:policy", [*QUESTION, FINAL], example, seed=seed).content
                 for seed in range(120)]  # fmt: skip
        return sum("answer is B" in text for text in texts)

    assert right({"answer": "B"}) > right({}) + 20


def test_it_counts_words_and_cuts() -> None:
    reply = said("scripted:policy", [*QUESTION, FINAL], {}, max_tokens=3)
    assert reply.finish_reason == "length"
    assert len(reply.content.split()) == reply.completion_tokens == 3


def test_echo_says_the_last_message() -> None:
    assert said("scripted:echo", [FINAL], {}).content == FINAL["content"]


def test_an_unknown_script_names_the_known_ones() -> None:
    with pytest.raises(FatalModelError, match="scripted:policy, scripted:echo"):
        open_model("scripted:nope")
