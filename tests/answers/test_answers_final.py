"""The answer parser on texts of our own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.answers.final import after_marker, final_answer
from tests.support.exhaustive import every_nth

ANSWERED = [
    ("The answer is C.", "C"),
    ("Answer is B. <thinking>it fits</thinking>", "B"),
    ("Final answer: (d)", "D"),
    ("**Final Answer:** **C**", "C"),
    ("## Final Answer\nAnswer: C", "C"),
    ("### Answer:\n\n**B. granite**", "B"),
    ("The correct answer is option B) granite", "B"),
    ("THE ANSWER IS D", "D"),
    ("The answer is A", "A"),
    ("The answer is A because of the rock", "A"),
    ("The answer is a.", "A"),
    ("the answer is b because it sinks", "B"),
    ("The answer is: **A**", "A"),
    ("**Answer:** A", "A"),
    (r"The answer is $\boxed{\text{C}}$.", "C"),
    ('The answer is "B".', "B"),
    ("The answer is 'B'", "B"),
    ("The answer is [C]", "C"),
    ("The answer is `C`", "C"),
    ("The answer is C: a quarry", "C"),
    ("The answer is C - a quarry", "C"),
    ("The answer is option (c)", "C"),
    ("The answer is letter C", "C"),
    ("The best choice is D", "D"),
    ("The correct option is **A** since it is heavy", "A"),
    ("The answer to this question is C", "C"),
    ("The correct answer for this multiple-choice question is C.", "C"),
    ("The answer would be C.", "C"),
    ("The answer remains C.", "C"),
    ("The answer is definitely C", "C"),
    ("The answer is actually C.", "C"),
    ("the answer is therefore: C", "C"),
    ("It's D. The answer's D", "D"),
    ("Answer — D", "D"),
    ("The answer\nis C", "C"),
    ("The answer is C, A is wrong because it floats", "C"),
    ("The answer is C. A, B and D are wrong.", "C"),
    ("The answer is C.To see this, weigh it", "C"),
    ("«SYS»[/INST]The answer is C.<thinking>To", "C"),
    ("«SYS» The answer is C.", "C"),
    ("The answer is C</thinking> as said", "C"),
    ("The answer is B. Wait, no. The answer is C.", "C"),
    ("The answer is D. The student's answer is B.", "D"),
    ("The answer is D. A wrong answer is B.", "D"),
    ("The answer is D. The answer is certainly not B.", "D"),
    ("Option B is heavy. Choice C is the best explanation.", "C"),
]
UNANSWERED = [
    "",
    "I do not know.",
    "the answer is a mess",
    "the answer is a",
    "The answer is unclear",
    "Answer: A quarry is where it comes from",
    "The answer is: **A quarry in the hills**",
    "The answer is A or B.",
    "The answer is either A or B.",
    "The answer is A/B",
    "The answer is A, B, C, or D.",
    "What is your final answer (A, B, C, or D)?",
    "The answer is X where X is A, B, C, or D",
    "The answer is not A",
    "The wrong answer is A.",
    "The student's answer is B.",
    "The answer is F",
    "The answer is C-14 dating",
    "The answer is e.g. stone",
    "The answer is B12",
    "The answer is C++",
    "The answer is D's weight",
    "The answer is Because",
    "The option is D",
    "This is a nonanswer: C",
    "<thinking> The answer is C.",
    "<thinking> The answer is C. </thinking>",
    "<THINKING> The answer is C. </Thinking> Well.",
    "< thinking >The answer is C.< / thinking >",
]


@pytest.mark.parametrize(("text", "letter"), ANSWERED)
def test_answered(text, letter):
    assert final_answer(text, "ABCD") == letter
    assert final_answer(text, ("A", "B", "C", "D")) == letter


@pytest.mark.parametrize("text", UNANSWERED)
def test_unanswered(text):
    assert final_answer(text, "ABCD") is None


def test_only_the_question_s_own_letters():
    assert final_answer("The answer is E.", "ABCDE") == "E"
    assert final_answer("The answer is E.", "ABCD") is None
    assert final_answer("The answer is C.", "AB") is None


def test_an_answer_split_by_a_thinking_block():
    assert final_answer("The answer is <thinking>hm, D? </thinking> C.", "ABCD") == "C"


def test_what_was_thought_does_not_count():
    text = "The answer is B. <thinking>Or no: the answer is C.</thinking>"
    assert final_answer(text, "ABCD") == "B"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("I guess. I ANSWER: B", "B"),
        ("The answer is A? I ANSWER: The answer is C.", "C"),
        ("I ANSWER: **d**", "D"),
        ("I ANSWER: option (B), granite", "B"),
        ("I ANSWER: A quarry", None),
        ("I ANSWER: A or B", None),
        ("I ANSWER: B or C", None),
        ("I ANSWER:", None),
        ("I ANSWER: B. No, I ANSWER: C", "C"),
        ("The answer is D.", "D"),
        ("<thinking> I ANSWER: B </thinking> The answer is C", "C"),
        ("B is what I think. I ANSWER: nothing", None),
    ],
)
def test_after_marker(text, letter):
    assert after_marker(text, "I ANSWER:", "ABCD") == letter


@given(st.text(alphabet="answer isABCDabcd<>/thinking:.,*()\n'\"\\{}İ ", max_size=200))
def test_any_text_gives_a_letter_or_none(text):
    assert final_answer(text, "ABCD") in {None, "A", "B", "C", "D"}


@given(st.text(max_size=60), st.sampled_from("ABCD"))
def test_the_last_sentence_counts_whatever_precedes_it(before, letter):
    before = before.replace("<", "").replace("\\", "")
    assert final_answer(f"{before}\nThe answer is {letter}.", "ABCD") == letter


TEXTS = [
    "answer is" + " " * 100_000,
    "answer is " + "*(" * 50_000,
    "answer " * 20_000,
    "<thinking>" * 20_000,
    "<" + " " * 100_000,
    "answer: " + r"\boxed{" * 20_000,
    "answer to" + " a b c d" * 20_000,
]


@pytest.mark.parametrize("text", every_nth(3, TEXTS))
def test_hostile_texts_are_read_in_linear_time(text):
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    assert final_answer(text * 3, "ABCD") is None


@pytest.mark.parametrize(
    "text",
    [
        "The answer is C. Question: Which one floats? The answer is A",
        "It is marble, so C. User: And which one floats? Assistant: The answer is A",
        "Question: Which is it? The answer is C.",
    ],
)
def test_a_question_that_follows_in_the_same_line_is_another_one(text: str) -> None:
    rocks = {"A": "granite", "B": "sandstone", "C": "marble", "D": "basalt"}
    assert final_answer(text, rocks) == "C"
