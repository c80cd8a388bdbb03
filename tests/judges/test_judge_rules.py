"""The heuristic judge: what it rewards, in talk of several lengths."""

import statistics

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from convbench.errors import DataError
from convbench.judges.rules import score, score_answer
from convbench.rewards import conversation_reward, discount_factor
from convbench.schema import Choice, Conversation, Example, Reward, Turn
from tests.helpers.judged_talk import PROTOCOL


def options(*texts):
    return tuple(Choice(label=x, text=t) for x, t in zip("ABCD", texts, strict=True))


SHORT = Example(
    example_id="e",
    task="t",
    split="test",
    group_id="g",
    question="Which has color red?",
    choices=options("popir", "lukel", "zales", "dafom"),
    answer="C",
)
OF = SHORT.model_copy(update={"choices": options("red", "blue", "pink", "gold")})
LONG = SHORT.model_copy(
    update={
        "question": "Why do puddles vanish on a dry day?",
        "choices": options(
            "the ground freezes", "birds drink them", "the water evaporates", "the rain returns"
        ),
    }
)
CAREFUL = (
    "<thinking> A: popir has color blue, need red, no. B: lukel has color pink, need red, no. "
    "C: zales has color red, need red, yes. D: dafom has color gold, need red, no. So C."
    "</thinking> I say C.",
    "<thinking> C: zales has color red, need red, yes.</thinking> I say C.",
    "<thinking> I said C.</thinking> The answer is C.",
)
GUESS = ("<thinking> I guess.</thinking> I say C.", "<thinking> Fine.</thinking> I say C.",
         "<thinking> I said C.</thinking> The answer is C.")  # fmt: skip
PROSE = (
    "The answer is C. <thinking>Option A is wrong because a dry day is warm, and nothing freezes. "
    "Option B is unlikely: birds drink very little of a puddle. Option C is right, since warm dry "
    "air takes up water. Option D is incorrect because rain fills puddles.</thinking>"
)


def talk(*said, reasons=()):
    turns = []
    for number, text in enumerate(said):
        turns.append(Turn(speaker="teacher", step="q", content="Think and answer."))
        reason = reasons[number] if reasons else "stop"
        turns.append(Turn(speaker="assistant", step="a", content=text, finish_reason=reason))
    return Conversation(
        key="k", conversation_id="c", example_id="e", turns=tuple(turns), stop="complete"
    )


def rated(*said, example=SHORT, mode="thinking", **more):
    return score(talk(*said, **more), example, PROTOCOL, mode=mode)


def swap(said, old, new):
    return tuple(text.replace(old, new) for text in said)


def test_care_beats_a_lucky_guess_beats_a_wrong_one():
    careful, lucky = rated(*CAREFUL), rated(*GUESS)
    wrong = rated(*swap(swap(swap(GUESS, "say C", "say A"), "said C", "said A"), "is C", "is A"))
    assert careful["overall"] > lucky["overall"] + 2 > wrong["overall"] + 4
    for name in careful:
        assert careful[name] >= lucky[name] >= wrong[name]
    assert careful["comprehensiveness"] == 10
    assert lucky["comprehensiveness"] < 4


WORDS = [
    "Option A fits best, yes.", "B: no, it lacks what is needed.", "C is wrong because it floats.",
    "D does not match.", "So C.", "I say A.", "Perhaps.", "I guess.", "<thinking>", "</thinking>",
    "therefore", "word " * 500, "again and again and again " * 20, "The answer is B.",
    "popir has color blue, need red, no.", "zales is red, yes, because it is.",
]  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=2, max_size=6),
    st.sampled_from(["The answer is A.", "The answer is D.", "I do not know.", "A or C.", ""]),
    st.lists(st.sampled_from(["stop", "length"]), min_size=6, max_size=6),
)
@example([["again and again and again " * 20], WORDS[:4]], "The answer is A.", ["length"] * 6)
@example([["Perhaps."], [*WORDS[:4], "So A."]], "I do not know.", ["stop"] * 6)
def test_whatever_stands_around_it_a_wrong_answer_never_outranks_a_right_one(said, wrong, reasons):
    """Both talks are made of any words at all; only their last sentences differ in truth."""
    half = len(said) // 2
    talks = [" ".join(words) for words in said]
    right = rated(*talks[:half], "The answer is C.", reasons=reasons)
    other = rated(*talks[half:], wrong, reasons=reasons)
    assert right["overall"] > other["overall"]


def template(letter):
    """A talk that weighs every option, whichever letter it then gives."""
    others = " ".join(f"{x}: it lacks what is needed, no." for x in "ABCD" if x != letter)
    return f"<thinking>{others} {letter}: it fits because it has it, yes. So {letter}.</thinking> The answer is {letter}."  # noqa: E501


@pytest.mark.parametrize("example", [SHORT, OF, LONG], ids=["names", "values", "prose"])
@pytest.mark.parametrize("terse", ["The answer is C.", "Answer: C", "**C** it is. The answer is C"])
def test_a_template_with_a_random_letter_earns_less_than_a_short_right_answer(example, terse):
    guessed = statistics.fmean(rated(template(x), example=example)["overall"] for x in "ABCD")
    assert guessed < rated(terse, example=example)["overall"]


def test_the_bounds_that_keep_right_above_wrong():
    rambling = "<thinking> Maybe." + " so it is so it is" * 3000 + "</thinking> The answer is C."
    worst_right = rated(rambling, mode="standard", reasons=("length",))
    best_wrong = rated(CAREFUL[0], CAREFUL[1], "I do not know.")
    assert best_wrong["overall"] <= 3.2 < 3.8 <= worst_right["overall"]


def test_all_scores_are_in_range_and_deterministic():
    for said in (CAREFUL, GUESS, ("",), ("word " * 5000,), (PROSE,)):
        got = rated(*said)
        assert all(0 <= value <= 10 for value in got.values())
        assert got == rated(*said)
        assert list(got) == [
            "accuracy",
            "reasoning",
            "comprehensiveness",
            "pedagogical",
            "confidence",
            "overall",
        ]


def test_overall_is_the_mean_of_the_five():
    got = rated(*GUESS)
    assert got["overall"] == pytest.approx(statistics.fmean(list(got.values())[:5]), abs=0.1)


def test_options_that_are_weighed_in_prose_count():
    assert rated(PROSE, example=LONG)["overall"] > 9
    assert rated("The answer is C. I am sure.", example=LONG)["overall"] < 6


@pytest.mark.parametrize(
    ("said", "overall"),
    [
        ("The answer is C. It is red.", 10.0),
        ("The answer is B.", 2.0),
        ("The answer is A, B, C, or D.", 0.0),
        ("You're welcome.", 0.0),
    ],
)
def test_judge_answer_scores_the_answer_alone(said, overall):
    assert score_answer(talk("The answer is C.", said), SHORT, PROTOCOL) == {"overall": overall}


@pytest.mark.parametrize(("judge", "name"), [(score, "rules"), (score_answer, "answer")])
def test_a_question_without_a_gold_letter_is_refused(judge, name):
    example = SHORT.model_copy(update={"answer": "Z"})
    with pytest.raises(DataError, match=f"judge {name}: the gold answer of the question is not"):
        judge(talk("The answer is A."), example, PROTOCOL)


def test_tags_as_the_mode_asks():
    bare = swap(swap(CAREFUL, "<thinking> ", ""), "</thinking>", "")
    assert rated(*CAREFUL)["overall"] > rated(*bare)["overall"]
    assert rated(*bare, mode="standard")["overall"] > rated(*CAREFUL, mode="standard")["overall"]
    unclosed = (*CAREFUL[:2], "The answer is C. <thinking> I said C.")
    assert (
        rated(*CAREFUL)["pedagogical"]
        > rated(*unclosed)["pedagogical"]
        > rated(*bare)["pedagogical"]
    )


def test_the_mode_is_read_from_the_prompts_where_nobody_tells_it():
    asked = talk("The answer is C.").model_copy(
        update={"systems": {"assistant": "Use <thinking> tags."}}
    )
    told = score(talk("The answer is C."), SHORT, PROTOCOL)
    assert score(asked, SHORT, PROTOCOL)["pedagogical"] == told["pedagogical"] - 3


def test_an_unreadable_answer_is_between_right_and_wrong():
    shy = rated(*CAREFUL[:2], "I do not know.")
    assert (
        rated(*CAREFUL)["accuracy"]
        > shy["accuracy"]
        > rated(*CAREFUL[:2], "The answer is A.")["accuracy"]
    )


def test_cut_turns_and_repetition_cost():
    cut = rated(*CAREFUL, reasons=("length", "length", "stop"))
    assert cut["reasoning"] < rated(*CAREFUL)["reasoning"]
    assert rated(*[CAREFUL[0]] * 9, CAREFUL[2])["pedagogical"] < rated(*CAREFUL)["pedagogical"]


def test_a_question_without_options_cannot_be_judged():
    with pytest.raises(DataError, match="gold answer of the question is not the letter"):
        score(talk("Yes."), SHORT.model_copy(update={"choices": ()}), PROTOCOL)


def test_reward():
    judged = {"overall": 8.0, "accuracy": 5.0}
    assert conversation_reward(Reward(), PROTOCOL, judged, 3) == pytest.approx(0.8)
    discounted = PROTOCOL.model_copy(update={"discount": 0.5})
    assert conversation_reward(Reward(), discounted, judged, 3) == pytest.approx(0.1)
    assert conversation_reward(Reward(discount=1.0), discounted, judged, 3) == pytest.approx(0.8)
    assert conversation_reward(
        Reward(metric="accuracy", scale=5), PROTOCOL, judged, 3
    ) == pytest.approx(1.0)
    assert discount_factor(Reward(), PROTOCOL) == 1.0
    with pytest.raises(DataError, match="found accuracy"):
        conversation_reward(Reward(), PROTOCOL, {"accuracy": 1.0}, 1)
