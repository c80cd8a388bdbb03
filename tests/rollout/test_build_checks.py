"""Fidelity checks: what they find, and what they leave alone."""

from pathlib import Path

import pytest
import yaml

from convbench.catalog import load_spec
from convbench.catalog.python import find_function
from convbench.learn.select import relevant_flags
from convbench.rollout.checks import (
    answers,
    empty,
    names_answer,
    quotes_reference,
    repeats,
    role,
    words,
)
from convbench.schema import Choice, Conversation, Example, ProtocolSpec, Turn

PROTOCOL = load_spec(ProtocolSpec, "protocols", "clarifying")
COLLABORATION = load_spec(ProtocolSpec, "protocols", "collaboration")
HARMLESS = yaml.safe_load((Path(__file__).parent / "harmless.yaml").read_text(encoding="utf-8"))
OPTIONS = ("the ground freezes", "birds drink them", "the water evaporates", "rain returns")
EXAMPLE = Example(
    example_id="e",
    task="t",
    split="test",
    group_id="g",
    question="Why do puddles vanish?",
    choices=tuple(Choice(label=x, text=t) for x, t in zip("ABCD", OPTIONS, strict=True)),
    answer="C",
)
QUESTION = "What does it mean that something evaporates?"
REPLY = "It turns into vapour and rises into the air. Warm days help it along."
SECRET = (
    "def add(a, b):\n    total = a + b\n    if total > 10:\n        total = 10\n    return total"
)
HIDDEN = Example(
    example_id="e",
    task="t",
    split="train",
    group_id="g",
    question="Write a function that adds two numbers.",
    hidden={"reference": SECRET},
)


def talk(question=QUESTION, reply=REPLY, thought="<thinking>hm</thinking>", final="Answer is C."):
    said = [
        ("teacher", "question", "Ask me. The answer is A?", "scripted"),
        ("assistant", "clarify", question, "stop"),
        ("teacher", "respond", reply, "stop"),
        ("assistant", "reason", thought, "stop"),
        ("teacher", "final", "Great. Give your final answer.", "scripted"),
        ("assistant", "answer", final, "stop"),
    ]
    turns = tuple(
        Turn(speaker=who, step=step, content=text, finish_reason=how)
        for who, step, text, how in said
    )
    return Conversation(key="k", conversation_id="c", example_id="e", turns=turns, stop="complete")


def told(*said):
    """Return a conversation of these turns of an agent and a human who knows `SECRET`."""
    turns = tuple(
        Turn(speaker=who, step="s", content=text, finish_reason="stop") for who, text in said
    )
    return Conversation(key="k", conversation_id="c", example_id="e", turns=turns, stop="complete")


def flags_of(protocol, example, conversation):
    checks = [find_function(check.function) for check in protocol.checks]
    return {flag for check in checks for flag in check(conversation, example, protocol)}


@pytest.mark.parametrize("name", ["clarifying", "clarifying-adaptive"])
def test_a_faithful_talk_has_no_flags(name):
    assert flags_of(load_spec(ProtocolSpec, "protocols", name), EXAMPLE, talk()) == set()


@pytest.mark.parametrize(
    ("reply", "leaking"),
    [
        ("The answer is C.", True),
        ("**The correct answer is C**, as vapour rises.", True),
        ("The answer is: the water evaporates.", True),
        ("I think the answer is B.", True),
        ("Think about option C.", True),
        ("What of (C)?", True),
        ("On a warm day the water evaporates.", True),
        ("The Water Evaporates, you see.", True),
        (REPLY, False),
        ("Compare option A with option C.", False),
        ("The ground freezes when it is cold; the water evaporates when it is warm.", False),
        ("Vitamin C is the best known vitamin.", False),
        ("Now give your final answer.", False),
        ("You said the answer is B; think about why.", False),
        ("What do you already know about rain?", False),
        ("", False),
    ],
)
def test_a_teacher_that_names_the_answer_alone_and_unasked_leaks(reply, leaking):
    assert (names_answer(talk(reply=reply), EXAMPLE, PROTOCOL) == ["teacher:leak"]) is leaking


def test_what_the_policy_named_before_is_no_leak():
    asked = "What does option C mean by evaporates?"
    conversation = talk(question=asked, reply="Option C says that it becomes vapour.")
    assert names_answer(conversation, EXAMPLE, PROTOCOL) == []


def test_the_policys_own_and_scripted_answers_are_no_leak():
    assert names_answer(talk(final="The answer is C."), EXAMPLE, PROTOCOL) == []


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        ((("human", "Never let it go above ten, please."),), []),
        ((("human", "total = a + b if total > 10: total = 10 return total"),), ["human:leak"]),
        ((("human", "```python\nx = 1\n```"),), ["human:code"]),
        ((("human", "Like this:\n  def f"),), ["human:code"]),
        ((("human", "x" * 400 + SECRET),), []),  # cut before the policy hears it
        ((("assistant", SECRET),), []),
    ],
)
def test_a_hidden_text_that_a_human_quotes_is_found(said, flags):
    assert quotes_reference(told(*said), HIDDEN, COLLABORATION) == flags


def test_what_the_question_says_too_is_no_leak():
    asked = HIDDEN.model_copy(update={"question": f"Write this: {SECRET}"})
    assert quotes_reference(told(("human", SECRET.replace("def", ""))), asked, COLLABORATION) == []


@pytest.mark.parametrize("answer", HARMLESS)
def test_a_human_that_keeps_to_its_part_has_no_flags(answer):
    conversation = told(("assistant", "Which one?"), ("human", answer))
    assert flags_of(COLLABORATION, HIDDEN, conversation) == set()


@pytest.mark.parametrize(
    ("reply", "flagged"),
    [
        ("<thinking>Option A seems off.</thinking>", True),
        ("Vapour is a gas.\nStudent: I see. So it rises?\nTeacher: Yes.", True),
        ("**Assistant:** I see.", True),
        ("As a student, you will meet vapour in class.", False),
        ("Students often mix these two up: vapour is a gas, steam has drops.", False),
        (REPLY, False),
    ],
)
def test_a_teacher_that_takes_the_students_part_is_found(reply, flagged):
    assert (role(talk(reply=reply), EXAMPLE, PROTOCOL) == ["teacher:role"]) is flagged


def test_a_human_that_uses_the_policys_marker_is_found():
    assert role(told(("human", "I WANT TO ANSWER: 1")), HIDDEN, COLLABORATION) == ["human:role"]
    assert role(told(("assistant", "I WANT TO ANSWER: 1")), HIDDEN, COLLABORATION) == []


@pytest.mark.parametrize(
    ("question", "flags"),
    [
        (QUESTION, []),
        ("The answer is C. Is that right?", ["assistant:answers"]),
        ("Answer is C. <thinking>It must be.</thinking>", ["assistant:answers"]),
        ("It is C, is it not?", []),
        ("Puddles vanish because the sun is warm.", ["assistant:no-question"]),
    ],
)
def test_a_policy_that_should_ask_is_held_to_it(question, flags):
    assert answers(talk(question=question), EXAMPLE, PROTOCOL) == flags


def test_only_turns_that_a_model_answers_are_held_to_asking():
    assert answers(talk(thought="The answer is C."), EXAMPLE, PROTOCOL) == []
    reasoning = load_spec(ProtocolSpec, "protocols", "reasoning")
    turns = (
        Turn(speaker="assistant", step="initial-reply", content="The answer is C."),
        Turn(speaker="teacher", step="final", content="Well?", finish_reason="scripted"),
    )
    talked = Conversation(key="k", conversation_id="c", example_id="e", turns=turns)
    assert answers(talked, EXAMPLE, reasoning) == []


def test_a_turn_over_its_limit_of_words_is_found():
    sixty = " ".join(["word"] * 60)
    kept = talk(reply=sixty, thought=f"<thinking>{sixty}</thinking>")
    assert words(kept, EXAMPLE, PROTOCOL) == []
    got = words(talk(reply=f"{sixty} more", thought=f"{sixty} more"), EXAMPLE, PROTOCOL)
    assert got == ["teacher:words", "assistant:words"]


def test_steps_without_a_limit_have_none():
    reasoning = load_spec(ProtocolSpec, "protocols", "reasoning")
    turn = Turn(speaker="assistant", step="final-reply", content="word " * 900)
    talked = Conversation(key="k", conversation_id="c", example_id="e", turns=(turn,))
    assert words(talked, EXAMPLE, reasoning) == []


def test_an_empty_turn_and_one_said_twice_are_found():
    assert empty(talk(reply=" "), EXAMPLE, PROTOCOL) == ["teacher:empty"]
    assert empty(talk(question=""), EXAMPLE, PROTOCOL) == []
    human = ("human", "Cap it at ten.")
    twice = told(human, ("assistant", "And?"), ("human", "Cap  it at TEN."))
    assert repeats(twice, HIDDEN, COLLABORATION) == ["human:repeats"]
    assert repeats(told(human, ("assistant", human[1])), HIDDEN, COLLABORATION) == []


@pytest.mark.parametrize(
    ("flag", "counts"),
    [
        ("teacher:leak", True),
        ("teacher:role", True),
        ("teacher:empty", True),
        ("teacher:words", False),
        ("teacher:repeats", False),
        ("human:code", False),
        ("assistant:words", False),
        ("assistant:no-question", False),
        ("assistant:answers", False),
        ("assistant:shouts", True),  # of a check of one's own
    ],
)
def test_leaks_roles_empty_turns_and_own_findings_alone_drop_a_conversation(flag, counts):
    assert relevant_flags([flag]) == ((flag,) if counts else ())
