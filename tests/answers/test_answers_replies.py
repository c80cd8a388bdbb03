"""Final turns in words of every kind, labelled before a reader saw them; and the strict reading."""

import re
from pathlib import Path

import pytest

from convbench.answers.final import final_answer
from convbench.answers.grade import grade_texts
from tests.helpers.excerpts import SHARED
from tests.support.cases import load_cases
from tests.support.exhaustive import every_nth

FILE = load_cases(Path(__file__).parent / "replies.yaml")
PRINTED = load_cases(Path(__file__).parent / "printed.yaml")
PAPER = SHARED / "paper" / "refit-swift.md"
OPEN = "<thinking>I examined C and thought"


@pytest.mark.parametrize(
    "reply", FILE["replies"], ids=lambda reply: ascii(reply["text"])[1:60].replace("\\n", " ")
)
def test_reply(reply):
    found = final_answer(reply["text"], FILE["options"][reply["options"]])
    assert found == reply["answer"]


@pytest.mark.parametrize("reply", PRINTED["replies"], ids=lambda reply: reply["section"])
def test_the_papers_final_replies(reply):
    """In every reading; a block that the turn before leaves open hides what is in it."""
    turns = [OPEN, reply["text"]] if reply.get("open") else [reply["text"]]
    options = PRINTED["options"][reply["options"]]
    for reading, answer in (("any", reply["answer"]), ("strict", reply["strict"])):
        assert grade_texts(turns, options, "C", reading=reading).answer == answer


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


def test_few_are_invented_where_nothing_is_answered():
    assert sum(reply["answer"] is None for reply in FILE["replies"]) >= 80


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("The answer is C.", "C"),
        ("**Final answer:** C", "C"),
        ("\\boxed{C}", "C"),
        ("The answer is A. Wait, no. The answer is C.", "C"),
        ("C", None),
        ("I choose C.", None),
        ("C is the correct answer.", None),
        ("The gas that we look for, however, is C.", None),
        ("Dus C.", None),
        ("Only marble was changed by heat, so C.", None),
    ],
)
def test_strict_reads_the_papers_phrase_alone(text, strict):
    options = FILE["options"]["rock"]
    assert grade_texts([text], options, "C", reading="strict").answer == strict
    assert grade_texts([text], options, "C").answer == "C"


@pytest.mark.parametrize(
    "text", ["{}", "The answer is {}.", "The answer is 1/{}.", "\\boxed{{1.{}}}"]
)
def test_a_number_of_thousands_of_digits_is_no_option(text):
    assert final_answer(text.format("1" * 6_000), FILE["options"]["number"]) is None


@pytest.mark.parametrize(
    ("text", "answer"), [("-10 \u00b0C", "A"), ("10 \u00b0C", "C"), ("- 10 \u00b0C", "C")]
)
def test_a_sign_is_no_mark_of_a_list(text, answer):
    assert final_answer(text, FILE["options"]["temp"]) == answer


PIECES = [
    "\n", " ", "\n \n", "a_ ", "(", "\\boxed{", "\u3010", "wait ", "the answer is A. ", "A or ",
    "so A ", "I choose ", "C is correct ", "5 ", "5*", "1 000 ", "x? ", "user:", "```sql\n", "~~",
    "the best ", "respuesta ", "no, ", "= 5", "is the correct ", "- 5", "\t", "\u0909\u0924\u094d ",
]  # fmt: skip


@pytest.mark.parametrize("piece", every_nth(4, PIECES), ids=ascii)
def test_a_long_text_is_read_in_linear_time(piece):
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    filler = piece * (200_000 // len(piece))
    final_answer(f"The answer is C. {filler} The answer is C.", FILE["options"]["rock"])
