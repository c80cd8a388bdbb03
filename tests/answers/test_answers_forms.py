"""Forms in which models answer: two lists, one of which nobody tuned on."""

from pathlib import Path

import pytest

from convbench.answers.final import final_answer
from convbench.answers.grade import grade_texts
from tests.support.cases import load_cases
from tests.support.exhaustive import every_nth

FORMS = load_cases(Path(__file__).parent / "forms.yaml")
OPTIONS = {
    "A": "a system of tubes",
    "B": "granite",
    "C": "the water evaporates",
    "D": "B cells",
}


def cases(name):
    for form in FORMS[name]:
        known = [pytest.mark.xfail(strict=True, reason="not read right yet")]
        marks = known if form.get("unread") else []
        yield pytest.param(form["text"], form["answer"], id=ascii(form["text"])[1:50], marks=marks)


@pytest.mark.parametrize(("text", "answer"), [c for name in FORMS for c in cases(name)])
def test_form(text, answer):
    assert grade_texts([text], OPTIONS, None).answer == answer


def test_there_are_many_forms_of_both_kinds():
    for name in ("tuned", "heldout"):
        assert len(FORMS[name]) >= 100
        assert sum(form["answer"] is None for form in FORMS[name]) >= 30


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is A system of tubes", "C"),
        ("The answer is system of tubes", "C"),
        ("The answer is A", "A"),
        ("The answer is B", "B"),
        ("The answer is no", "B"),
        ("The answer is yes or no", None),
        ("The answer is yesterday", None),
        ("The answer is yes", None),
    ],
)
def test_an_options_text_is_read_where_it_is_one_option(text, answer):
    """Texts that are letters themselves are none, and two options of one text are no answer."""
    options = {"A": "yes", "B": "No.", "C": "The system of tubes", "D": "A", "E": "yes"}
    assert final_answer(text, options) == answer


def test_without_texts_only_letters_are_read():
    assert final_answer("The answer is granite.", "ABCD") is None
    assert final_answer("The answer is A system of tubes", "ABCD") is None


FILLERS = [
    "\n" * 100_000, "\n \n" * 30_000, "\\boxed{" * 20_000, "【" * 100_000, "\u200b" * 100_000,
    "wait " * 20_000, "- " * 50_000, "<think>" * 20_000, "[/THINK]" * 20_000, "not " * 25_000,
]  # fmt: skip


@pytest.mark.parametrize("filler", every_nth(3, FILLERS), ids=lambda filler: ascii(filler[:9]))
def test_hostile_texts_are_read_in_linear_time(filler):
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    found = final_answer(f"{filler}\nThe answer is C. {filler}", OPTIONS)
    assert found in {"C", None}
