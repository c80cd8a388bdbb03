"""Fidelity checks: what they find, and what they leave alone."""

import pytest

from convbench.catalog import load_spec
from convbench.catalog.python import find_function
from convbench.rollout.checks import answers, asks, gives_answer_away, leak, only_asks, role, words
from convbench.schema import Choice, Conversation, Example, ProtocolSpec, Turn

PROTOCOL = load_spec(ProtocolSpec, "protocols", "clarifying")
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
QUESTION = "What does option C mean by evaporates?"
REPLY = (
    "When water evaporates it turns into vapour and rises into the air. Warm days help it along."
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


def found(**said):
    return [
        flag for check in (leak, asks, role, answers, words)
        for flag in check(talk(**said), EXAMPLE, PROTOCOL)
    ]  # fmt: skip


def test_a_faithful_talk_has_no_flags():
    assert found() == []


LEAKS = [
    "The answer is C.",
    "The correct answer is option C, as vapour rises.",
    "Good thinking. Option C is correct.",
    "C is the right answer here.",
    "Choice C is the best option.",
    "The answer is: the water evaporates.",
    "I think the answer is B.",
]
NO_LEAKS = [
    REPLY,
    "Option C says that the water evaporates, which is a change into vapour.",
    "I cannot tell you whether the answer is C.",
    "Option C is not correct.",
    "You said the answer is C; think about why.",
    "Is the answer C? Think about it.",
    "If option C is right, where does the water go?",
    "Birds do drink, but very little. Vitamin C is the best known vitamin.",
    "The answer is for you to find.",
    "Which option is the best answer depends on the weather.",
    "Now give your final answer.",
]


ROCKS = EXAMPLE.model_copy(
    update={
        "question": "Which of these rocks is metamorphic?",
        "choices": tuple(
            Choice(label=x, text=t)
            for x, t in zip("ABCD", ("granite", "sandstone", "marble", "basalt"), strict=True)
        ),
    }
)
GIVEN_AWAY = {
    "confirmed": [
        "You're right, it's marble.",
        "Correct - it is marble!",
        "Exactly: option C. Now, how does it form?",
        "Well done! Marble it is.",
        "I can confirm that it is marble.",
        "Your choice of marble is correct.",
        "You have found the right answer.",
        "Good thinking, C is right!",
    ],
    "advised": [
        "You should pick marble.",
        "If I were you I'd choose C.",
        "I would go with marble here.",
        "My advice is to select C.",
        "Put C on your sheet, or rather write down marble.",
    ],
    "others ruled out": [
        "It can't be A, B or D.",
        "Granite, sandstone and basalt are not metamorphic.",
        "You can safely rule out granite, sandstone and basalt.",
        "Granite is out. Sandstone is out. Basalt is out too.",
        "Only marble remains.",
    ],
    "place": [
        "It is the line just above the last one.",
        "Take the option listed right below sandstone.",
        "The one listed between sandstone and basalt will do.",
    ],
    "named": [
        "That would make marble the answer.",
        "That makes C the right choice, don't you agree?",
        "The right answer is marble, but can you say why?",
        "The one you want is C.",
    ],
}
KEPT = [
    "What is marble made of?",
    "You said marble; what led you to choose C?",
    "So you're thinking of marble? How would you test it?",
    "If you choose C, what would you say about its grains?",
    "Granite is not formed from limestone. What about the other three?",
    "Exactly, metamorphic means changed in form.",
    "You are right that granite cools from magma.",
    "Correct, heat and pressure change a rock. Which of the four has been changed?",
    "Some students pick marble because it shines.",
    "Don't choose marble only because it is white.",
    "Which of granite, sandstone and marble is not igneous?",
    "A rock is not a mineral, and D is a letter.",
    "Marble is used for statues, granite for kitchens.",
    "Let us not rule out marble yet.",
    "It is not the line just above the last one.",
    "In a quarry one layer of marble lies between sandstone and basalt.",
]


@pytest.mark.parametrize("reply", [text for texts in GIVEN_AWAY.values() for text in texts])
def test_an_answer_is_given_away_in_many_ways(reply):
    assert gives_answer_away(reply, ROCKS)


@pytest.mark.parametrize("reply", KEPT)
def test_what_helps_without_giving_the_answer_away(reply):
    assert not gives_answer_away(reply, ROCKS)


SUMS = EXAMPLE.model_copy(
    update={
        "question": "Solve 2x + 11 = 5.",
        "choices": tuple(
            Choice(label=x, text=t) for x, t in zip("ABCD", ("8", "3", "-3", "16"), strict=True)
        ),
    }
)


@pytest.mark.parametrize(
    ("reply", "example", "leaking"),
    [
        ("The solution lies below zero.", SUMS, True),
        ("Your result is negative.", SUMS, True),
        ("The answer is more than 2.", SUMS, False),
        ("If the answer is negative, check your signs.", SUMS, False),
        ("It's the longest of the four.", EXAMPLE, True),
        ("It's the shortest option.", EXAMPLE, False),
        ("It's the only option with evaporates in it.", EXAMPLE, True),
        ("The only option without water in it is worth a look.", EXAMPLE, False),
    ],
)
def test_a_description_that_fits_the_gold_option_alone(reply, example, leaking):
    assert gives_answer_away(reply, example) is leaking


@pytest.mark.parametrize("reply", LEAKS)
def test_leaks(reply):
    assert gives_answer_away(reply, EXAMPLE)
    assert "teacher:leak" in found(reply=reply)


@pytest.mark.parametrize("reply", NO_LEAKS)
def test_no_leaks(reply):
    assert not gives_answer_away(reply, EXAMPLE)


def test_a_final_answer_is_not_the_last_option():
    last = EXAMPLE.model_copy(update={"answer": "D"})
    assert not gives_answer_away("Now give your final answer.", last)
    assert gives_answer_away("Pick the final option.", last)


def test_the_policy_s_and_scripted_answers_are_no_leak():
    assert leak(talk(final="The answer is C."), EXAMPLE, PROTOCOL) == []


@pytest.mark.parametrize(
    ("reply", "flagged"),
    [
        ("Great question! What do you think happens to water on a warm day?", True),
        ("What do you already know about vapour? And about rain?", True),
        ("That's a good point. Could you say more?", True),
        ("Let's think about it. Where would the water go?", True),
        (REPLY, False),
        ("It turns into vapour when warmed. Would you like me to explain further?", False),
        ("Good question! Vapour is water as a gas. Does that help?", False),
        ("", False),
    ],
)
def test_asks(reply, flagged):
    assert only_asks(reply) is flagged
    assert ("teacher:asks" in found(reply=reply)) is flagged


@pytest.mark.parametrize(
    ("reply", "flagged"),
    [
        ("As a student, I wonder what vapour is.", True),
        ("I'm a curious student, and vapour puzzles me a lot.", True),
        ("Thank you, teacher. That helps.", True),
        ("My answer is not settled yet.", True),
        ("<thinking>Option A seems off.</thinking>", True),
        ("Vapour is a gas.\nStudent: I see. So it rises?\nTeacher: Yes.", True),
        ("As a student, you will meet vapour in class.", False),
        ("I'd like to clarify that vapour is water as a gas.", False),
        ("Students often mix these two up: vapour is a gas, steam has drops.", False),
        (REPLY, False),
    ],
)
def test_role(reply, flagged):
    assert ("teacher:role" in found(reply=reply)) is flagged


@pytest.mark.parametrize(
    ("question", "flags"),
    [
        (QUESTION, []),
        ("I'd like to clarify: does option A mean frost", []),
        ("Please tell me what evaporates means in option C.", []),
        ("The answer is C. Is that right?", ["assistant:answers"]),
        ("Answer is C. <thinking>It must be.</thinking>", ["assistant:answers"]),
        ("No question.", ["assistant:no-question"]),
        ("Puddles vanish because the sun is warm.", ["assistant:no-question"]),
    ],
)
def test_answers(question, flags):
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


def test_words():
    sixty = " ".join(["word"] * 60)
    assert (
        words(talk(reply=sixty, thought=f"<thinking>{sixty}</thinking>"), EXAMPLE, PROTOCOL) == []
    )
    got = words(
        talk(reply=f"{sixty} more", thought=f"{sixty} more", final=f"{sixty} more"),
        EXAMPLE,
        PROTOCOL,
    )
    assert got == ["teacher:words", "assistant:words"]


def test_steps_without_a_limit_have_none():
    reasoning = load_spec(ProtocolSpec, "protocols", "reasoning")
    turn = Turn(speaker="assistant", step="final-reply", content="word " * 900)
    talked = Conversation(key="k", conversation_id="c", example_id="e", turns=(turn,))
    assert words(talked, EXAMPLE, reasoning) == []


@pytest.mark.parametrize("name", ["clarifying", "clarifying-adaptive"])
def test_a_teacher_who_ends_the_talk_or_repeats_is_found(name):
    protocol = load_spec(ProtocolSpec, "protocols", name)
    checks = [find_function(check.function) for check in protocol.checks]

    def flags(conversation):
        return {flag for check in checks for flag in check(conversation, EXAMPLE, protocol)}

    assert flags(talk()) == set()
    assert "teacher:early" in flags(talk(reply=" "))
    assert "teacher:early" in flags(talk(reply="That is all I can say. Goodbye."))
    again = Turn(speaker="teacher", step="respond", content=REPLY, finish_reason="stop")
    twice = talk()
    assert "teacher:repeats" in flags(
        twice.model_copy(update={"turns": (*twice.turns[:4], again, *twice.turns[4:])})
    )
