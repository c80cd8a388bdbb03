"""What the paper says of its tables, by rules: on its own numbers, and on ours."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.reports.experiment.experiment_document import experiment_document, read_experiment
from convbench.reports.experiment.printed import published_comparisons
from convbench.reports.experiment.statements import (
    Evidence,
    own_evidence,
    paper_statements,
    printed_evidence,
    statement_table,
)
from convbench.reports.published import PrintedNumber, paper_tables
from tests.helpers.excerpts import SHARED
from tests.helpers.paper_set import write_cell

PRINTED = {
    "wins in 7": ("holds", "7 of 12 (8 with shared first places)"),
    "best two methods in 10": ("holds", "11 of 12"),
    "most of its reward metrics": ("holds", "10 of 12"),
    "significantly worse": (
        "does not hold",
        "0 of 3; Table 3: z 0.70; Table 8: z 0.54; Table 11: z 0.54; also in Table 6: z 3.81",
    ),
    "best two methods in 9": ("does not hold", "8 of 12"),
    "best two baselines": (
        "holds",
        "STaR-GATE 2.0, STaR-GATE-D 2.4, DPO 2.8, StepDPO 2.9, Base 5.0",
    ),
    "worst baseline": (
        "holds",
        "STaR-GATE 2.0, STaR-GATE-D 2.4, DPO 2.8, StepDPO 2.9, Base 5.0",
    ),
    "In both experiments": ("holds", "4 of 4"),
    "comparable to the best": (
        "does not hold",
        "3 of 4; Table 13, SWiFt: z 0.69; Table 13, ReFit: z 1.07; Table 14, SWiFt: z 2.53; "
        "Table 14, ReFit: z 1.30",
    ),
    "drop significantly": ("holds", "12 of 12 drop by more than 1.96 errors"),
    "longer conversations": ("does not hold", "5 of 6 steps down; not ReFit from n = 4 to 6"),
    "same as in Table 1": ("holds", "2 of 2"),
    "much higher language quality": ("does not hold", "10 of 12 above all baselines"),
    "improve with more training data": ("holds", "14 of 14 metrics rise"),
}
"""The results on the printed numbers, by words of the statement."""


def statement(words):
    (match,) = (s for s in paper_statements() if words in s.words)
    return match


@pytest.mark.parametrize("words", PRINTED)
def test_on_the_printed_tables(words: str) -> None:
    verdict = statement(words).check(printed_evidence())
    assert (verdict.state, verdict.detail) == PRINTED[words]


def test_all_are_tested_and_quote_the_paper() -> None:
    assert {statement(words).words for words in PRINTED} == {s.words for s in paper_statements()}
    file = SHARED / "paper" / "refit-swift.md"
    if not file.exists():
        pytest.skip("the paper's text is not here")
    marks = str.maketrans("", "", "*$_")
    text = " ".join(file.read_text().translate(marks).split()).replace(" ,", ",")
    for each in paper_statements():
        assert " ".join(each.words.split()) in text, each.words


@pytest.mark.parametrize("words", PRINTED)
def test_nothing_measured_is_undetermined(words: str) -> None:
    assert statement(words).check(Evidence({})).state == "undetermined"


def test_a_count_is_decided_by_what_is_missing() -> None:
    """7 of 12 may still come with 6 tables missing; with 3 wins and 3 missing it cannot."""
    printed = printed_evidence()
    wins = statement("wins in 7")

    def verdict(*numbers):
        return wins.check(replace(printed, tables={n: printed.tables[n] for n in numbers}))

    assert verdict(1, 4, 6, 8, 9, 10, 11).state == "holds"
    assert str(verdict(1, 2, 3)) == (
        "undetermined: 1 of 12 (1 with shared first places), 9 undecided"
    )
    assert verdict(1, 2, 3, 5, 7, 12, 6, 4, 8).state == "undetermined"
    assert verdict(2, 3, 5, 7, 12, 1).state == "undetermined"
    lost = {
        n: {**t, "DPO": {"accuracy": PrintedNumber(1.0, 0.0)}} for n, t in printed.tables.items()
    }
    assert wins.check(Evidence({n: lost[n] for n in range(1, 7)})).state == "does not hold"


def test_a_missing_method_may_have_been_better() -> None:
    printed = printed_evidence()
    without = {
        number: {name: row for name, row in methods.items() if name != "DPO"}
        for number, methods in printed.tables.items()
    }
    verdict = statement("best two methods in 10").check(Evidence(without))
    assert verdict.state == "undetermined"
    assert verdict.detail == "0 of 12, 11 undecided", "in Table 12 two others are above already"


def test_equal_numbers_without_an_error_are_no_drop() -> None:
    exact = {"accuracy": PrintedNumber(0.5, 0.0)}
    unknown = {"accuracy": PrintedNumber(0.5, math.nan)}
    methods = next(t.methods for t in paper_tables() if t.number == 13)
    drop = statement("drop significantly")
    tables = {n: dict.fromkeys(methods, exact) for n in (3, 4, 13, 14)}
    assert str(drop.check(Evidence(tables))).startswith("does not hold: 0 of 12")
    tables = {n: dict.fromkeys(methods, unknown) for n in (3, 4, 13, 14)}
    assert drop.check(Evidence(tables)).state == "undetermined"


def test_ours_are_tested_in_pairs(tmp_path: Path) -> None:
    """ReFit right on half of 12 questions that SWiFt all gets right; p of Student's t over them."""
    for key, refit in (
        (("mmlu", "standard", "reasoning", 3), 0.5),
        (("cosql", "standard", "reasoning", 3), 1.0),
    ):
        write_cell(tmp_path, key, {"Base": 0.1, "SWiFt": 1.0, "ReFit": refit}, 12)
    sections = read_experiment(tmp_path).sections
    comparisons = published_comparisons(sections, {}, ())
    evidence = own_evidence(comparisons)
    assert evidence.tests[8].is_significant
    assert evidence.tests[8].p == pytest.approx(2 * 0.006872, rel=0.01)
    assert (evidence.tests[11].p, evidence.tests[11].is_significant) == (1.0, False)
    assert evidence.mean_of(8, "ReFit", "accuracy") == 0.5
    verdict = statement("significantly worse").check(evidence)
    assert verdict.state == "does not hold"
    assert verdict.detail.startswith("1 of 3, 1 undecided; Table 8: p 0.0")


def test_the_document_has_them_after_the_overview(tmp_path: Path) -> None:
    write_cell(tmp_path, ("arc", "thinking", "reasoning", 3), {"Base": 0.2, "SWiFt": 0.8})
    document = experiment_document(read_experiment(tmp_path), "x", plots=False)
    assert document.parts[1].title == "The paper's statements"
    (table,) = document.parts[1].tables
    shown = [row[0].text for row in table.rows]
    assert any("wins in 7 experiments" in text for text in shown)
    assert not any("longer conversations" in text for text in shown), "no such table was planned"
    assert statement_table(()) is None
