"""The strict reader of final turns."""

import re
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from convbench.answers.grade import grade_texts
from convbench.answers.read import read_option
from tests.helpers.excerpts import SHARED

PRINTED = yaml.safe_load((Path(__file__).parent / "printed.yaml").read_text(encoding="utf-8"))
FINALS = yaml.safe_load((Path(__file__).parent / "finals.yaml").read_text(encoding="utf-8"))
PAPER = SHARED / "paper" / "refit-swift.md"
ROCKS = {"A": "granite", "B": "sandstone", "C": "marble", "D": "basalt"}


def answer_of(text, options=ROCKS, marker=None, before=()):
    return grade_texts([*before, text], options, None, marker).answer


def final_answers(kind):
    questions = FINALS["questions"]
    rows = FINALS[kind]
    return [(answer_of(row["text"], questions[row["question"]]["options"]), row) for row in rows]


def test_finals_as_chat_models_write_them_are_read_and_none_wrong():
    found = final_answers("read")
    assert len(found) == 60
    assert [(got, row) for got, row in found if got not in (None, row["answer"])] == []
    assert sum(got is not None for got, _ in found) >= 57


def test_finals_without_one_answer_stay_unread():
    assert len(FINALS["unread"]) == 20
    assert [(got, row) for got, row in final_answers("unread") if got is not None] == []


@pytest.mark.parametrize(
    "text",
    [
        "The answer is C.\n\nOption A: Granite - This is incorrect.",
        "The answer is C. Although D looks plausible, it is volcanic.",
        "The answer is C. However, B is a common mistake.",
        "The answer is C. Let me check: A is igneous, B is sedimentary.",
        "The answer is C.\n\nHowever, let's look at option D.",
        "The answer is C. In my previous turn I made a mistake about B.",
        "**The answer is C.**\n\nOption A (granite) is igneous. That is incorrect.",
        "The answer is C. Sorry for the confusion earlier! Marble is metamorphic; A and B are not.",
        "<<SYS>>[INST] The answer is C.",
        "[/INST] The answer is C.",
        "«SYS»[/SYS] The answer is C. </s>",
        "The answer is C. [INST] And which is volcanic? [/INST] The answer is D.",
        "<|assistant|>The answer is C.<|user|>Thanks. Is the answer D?",
        "The answer is marble.",
        "the answer is c.",
        "My final answer: (C)",
        "The answer to this question is “C”.",
        "The answer is C—marble.",
        "Since A, B and D are not metamorphic, the answer is C.",
        "As you can see, the answer is C.",
        "Answer:\n\nC. marble",
        "So it must be\n\nC) Marble",
        "The answer is $\\boxed{\\text{C}}$.",
        "</think> The answer is C.",
        "The answer is C.\n\nThe answer is C because marble was limestone.",
    ],
)
def test_an_answer_in_its_prescribed_form_is_read(text):
    assert answer_of(text) == "C"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I choose C.",
        "C is the correct answer.",
        "The answer is A or C.",
        "The answer is A/B",
        "The answer is A, B, C, or D.",
        "The answer is C. Granite",
        "The answer is not C.",
        "The answer is clear",
        "The answer is a metamorphic rock",
        "The answer is X where X is A, B, C, or D",
        "The answer is C++",
        "The answer is C-14 dating",
        "The answer is F",
        "If it was heated, the answer is C.",
        "The student's answer is C.",
        "What is your final answer? Is the answer C?",
        "The answer is A. Wait, the answer is C.",
        "The answer is C. No, that is wrong.",
        "The answer is C. Let me reconsider.",
        "Which one?\nA. granite\nB. sandstone\nC. marble\nD. basalt",
        "<thinking>The answer is C.</thinking>",
        "<thinking>The answer is C.",
    ],
)
def test_anything_else_is_unread(text):
    assert answer_of(text) is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("I guess. I ANSWER: B", "B"),
        ("The answer is A? I ANSWER: The answer is C.", "C"),
        ("I ANSWER: **d**)", "D"),
        ("I ANSWER: option (B), sandstone", "B"),
        ("I ANSWER: A quarry", None),
        ("I ANSWER: A or B", None),
        ("I ANSWER:", None),
        ("I ANSWER: B. No, I ANSWER: C", "C"),
        ("The answer is D.", "D"),
        ("<thinking> I ANSWER: B </thinking> The answer is C", "C"),
    ],
)
def test_a_marker_before_the_answer(text, letter):
    assert answer_of(text, marker="I ANSWER:") == letter


@pytest.mark.parametrize(
    ("text", "options", "answer"),
    [
        ("The answer is 1200.", {"A": "1,200", "B": "120"}, "A"),
        ("The answer is 1,200 km.", {"A": "1,200", "B": "120"}, None),
        ("The answer is 2.", {"1": "rubber", "2": "copper"}, "2"),
        ("The answer is 2.5.", {"A": "2", "B": "2.5"}, "B"),
        ("The answer is the tilt of the axis.", {"A": "The tilt of the axis.", "B": "tides"}, "A"),
        ("The answer is A.", {}, None),
        ("The answer is I.", {"I": "one", "V": "five"}, "I"),
        ("The answer is 2 + 2.", {"A": "2 + 2", "B": "(1)"}, "A"),
    ],
)
def test_options_of_other_kinds(text, options, answer):
    assert answer_of(text, options) == answer


def test_a_block_that_the_turn_before_left_open_hides_what_is_in_it():
    final = "So the answer is B. </thinking> I have explained it."
    assert answer_of(final, before=["<thinking> first, weigh it"]) is None
    assert answer_of(final, before=["<thinking> weigh it </thinking>"]) == "B"


@pytest.mark.parametrize("reply", PRINTED["replies"], ids=lambda reply: reply["section"])
def test_the_papers_final_replies(reply):
    before = ["<thinking>I examined C and thought"] if reply.get("open") else []
    options = PRINTED["options"][reply["options"]]
    assert answer_of(reply["text"], options, before=before) == reply["answer"]


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's text is not here")
def test_they_are_the_ones_that_the_paper_prints():
    """Each quotation is there in its section, and no final reply is left out."""
    text = PAPER.read_text(encoding="utf-8").replace("\\", "")
    sections = re.split(r"^#+ (?=[A-G]\.\d )", text, flags=re.M)
    by_name = {part[:3]: re.sub(r"\s+", " ", part.replace("*", "")) for part in sections}
    printed = {name for name, part in by_name.items() if "Assistant Message 3" in part}
    assert printed == {reply["section"] for reply in PRINTED["replies"]}
    for reply in PRINTED["replies"]:
        for piece in re.split(r"(?<=[.:]) ", re.sub(r"\s+", " ", reply["text"].replace("*", ""))):
            assert piece.removesuffix("</thinking>") in by_name[reply["section"]]


@given(st.text(alphabet="answer isABCDabcd<>/thinking:.,*()\n'\"\\{}İı ", max_size=200))
def test_any_text_gives_an_option_or_none(text):
    options = {"A": "i İs", "B": "a (b", "C": "", "D": "d\\"}
    assert answer_of(text, options) in {None, "A", "B", "C", "D"}


@pytest.mark.parametrize(
    "filler",
    ["answer ", "the answer is ", "answer\n", "\n", "(", "\\boxed{", "<", "<|", "[/INST] ", "A or ",
     "the answer is A. ", "no, ", "&amp;", "\nQuestion: ", "$", "the answer to this a "],
    ids=ascii,
)  # fmt: skip
def test_a_long_turn_is_read_in_linear_time(filler):
    """A quadratic reader takes minutes for the longer one."""
    started = time.perf_counter()
    read_option("The answer is C" + filler * (200_000 // len(filler)), ROCKS)
    assert time.perf_counter() - started < 20
