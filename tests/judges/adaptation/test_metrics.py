"""Free answers: what is said, normalised, matched."""

from __future__ import annotations

import pytest

from convbench.judges.adaptation import metrics


@pytest.mark.parametrize(
    ("reply", "golds", "exact", "f1", "contains"),
    [
        ("The Denver Broncos.", ["Denver Broncos"], 1, 1, 1),
        ("Denver", ["Denver Broncos"], 0, 2 / 3, 0),
        ("It was the Denver Broncos, in 2016", ["Denver Broncos"], 0, 4 / 8, 1),
        ("I recall kosan has home field. The answer is field.", ["field"], 1, 1, 1),
        ("Answer: 24–10", ["24–10", "24-10"], 1, 1, 1),
        ("the answer is a. No. The answer is gold.\nMore.", ["gold"], 1, 1, 1),
        ("battlefield", ["field"], 0, 0, 0),
        ("", ["field"], 0, 0, 0),
        ("the", ["a"], 0, 0, 0),
    ],
)
def test_grades(reply: str, golds: list[str], exact: float, f1: float, contains: float) -> None:
    assert metrics.exact_grade(reply, golds) == exact
    assert metrics.f1_grade(reply, golds) == pytest.approx(f1)
    assert metrics.contains_grade(reply, golds) == contains
