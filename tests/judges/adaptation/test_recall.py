"""The grade `recall`, by hand and against published verdicts of a judge model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import pytest

from convbench.judges.adaptation.accuracies import count_ties, tie_warning
from convbench.judges.adaptation.learner import Question, rule_grade
from convbench.judges.adaptation.metrics import normal_words, recall_grade
from convbench.judges.adaptation.settings import InnerSettings
from tests.helpers.excerpts import Source


@pytest.mark.parametrize(
    ("question", "gold", "reply", "right"),
    [
        ("Who built the mill?", "Joan Marsh", "The mill was built by Joan Marsh.", 1),
        ("Who built the mill?", "Joan Marsh", "Nobody knows who built the mill.", 0),
        ("At what age?", "twenty-five", "He was 25 years old.", 1),
        ("At what age?", "twenty-five", "He was 20 or 5.", 0),
        ("When?", "16 September 1840 to 21 May 1841", "September 16, 1840, until May 21, 1841", 1),
        ("Which share?", "about 20%", "20 percent", 1),
        ("How many?", "2,000", "2000 of them", 1),
        ("Which two cities?", "Zürich and Geneva", "Zurich and Geneva, often", 1),
        ("Where is Texas?", "the far Texas south", "It is in Texas.", 0),
        ("Who bought it?", "IntercontinentalExchange (ICE)", "IntercontinentalExchange", 1),
        ("Which faith?", "religious", "It was religion.", 1),
        ("Which field?", "field", "a battle", 0),
        ("Which field?", "field", "", 0),
        ("Which field?", "field", "<thinking>field</thinking>", 0),
        ("Which field?", "?!", "field", 0),
        ("When?", "190 BC", "It was in 190 BCE.", 1),
        ("When?", "1642", "in the 1640s", 1),
        ("When?", "1640's", "In 1642.", 1),
        ("When?", "1642", "in the 1650s", 0),
        ("Since when?", "from 1842 onwards", "in 1842", 1),
        ("Which faiths?", "Puritans or other Protestants", "Protestantism", 1),
        ("How many?", "more or less 20", "more", 0),
        ("Who came second?", "Major General James Hale", "James Hale", 1),
        ("Who came second?", "the general", "a general", 1),
        ("What justifies?", "faith alone", "Faith.", 1),
        ("How many people?", "45 million people", "46 million people", 0),
    ],
)
def test_by_hand(question: str, gold: str, reply: str, right: float) -> None:
    assert recall_grade(reply, [gold], question) == right
    assert rule_grade(InnerSettings())([Question((), (gold,), question)], [reply]) == [right]


def test_words() -> None:
    assert normal_words("Thirty-one U.S. mills’ 2nd 1,024 seventy") == [
        "31", "us", "mills", "2", "1024", "70",
    ]  # fmt: skip
    assert recall_grade("a" * 100_000, ["b" * 100_000], "?" * 100_000) == 0


def graded(found: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, float, bool]]:
    """Yield (file, article, grade, published verdict)."""
    for row in found:
        grade = recall_grade(row["answer"], [row["gold"]], row["question"])
        yield row["file"], row["title"], grade, row["right"]


def test_agrees_with_published_verdicts(judgments: Source) -> None:
    """With 9 of 10 of them, in every tenth of the articles 8 of 10, and in the order of methods."""
    import pyarrow.parquet as pq

    rows = pq.read_table(judgments.place / "seal_grades.parquet").to_pylist()
    found = list(graded(rows))
    assert fmean(grade == right for _, _, grade, right in found) >= judgments.pick(0.6, 0.9)
    if not judgments.real:
        return
    articles = sorted({title for _, title, _, _ in found})
    for start in range(10):
        part = {*articles[start::10]}
        assert fmean(g == right for _, title, g, right in found if title in part) >= 0.8
    methods = ("naive", "base", "gpt4_1", "iter1", "iter2")
    of = {name: [x for x in found if x[0] == f"eval_{name}.json"] for name in methods}
    theirs = [fmean(right for *_, right in of[name]) for name in methods]
    ours = [fmean(grade for _, _, grade, _ in of[name]) for name in methods]
    assert theirs == sorted(theirs)
    assert ours == sorted(ours), "the order of the published verdicts"


def test_most_passages_tie() -> None:
    values = [("a", 0.5), ("a", 0.5), ("b", 0.0), ("b", 0.0), ("c", 0.0), ("c", 1.0), ("d", 1.0)]
    assert count_ties(values) == (2, 3)
    assert "on 2 of 3 passages all edits have equal scores" in str(tie_warning(values))
    assert tie_warning(values[2:]) is None, "half of them is not most"
    assert tie_warning([]) is None
