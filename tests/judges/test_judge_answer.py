"""Judge `answer`: right, wrong, unreadable."""

from __future__ import annotations

import pytest

from convbench.errors import DataError
from convbench.judges.answer import score
from tests.helpers import tiny


@pytest.mark.parametrize(
    ("said", "overall"),
    [
        ("The answer is A. It is one.", 10.0),
        ("The answer is B.", 2.0),
        ("The answer is A, B, C, or D.", 0.0),
        ("You're welcome.", 0.0),
    ],
)
def test_a_wrong_answer_is_worth_more_than_none(said: str, overall: float) -> None:
    found = tiny.conversation("q", 0, ["The answer is A.", said])
    assert score(found, tiny.example("q"), tiny.PROTOCOL) == {"overall": overall}


def test_a_question_without_a_gold_letter_is_refused() -> None:
    example = tiny.example("q").model_copy(update={"answer": "Z"})
    found = tiny.conversation("q", 0, ["The answer is A."])
    with pytest.raises(
        DataError, match="judge answer: the gold answer of the question is not the letter"
    ):
        score(found, example, tiny.PROTOCOL)
