"""Win rates from comparisons in both orders, and from the scores of pages."""

import pytest

from convbench.reports.report import make_report
from convbench.schema.judge import Comparison
from convbench.store.notes import comparisons_file
from tests.helpers.runs import make, questions

JUDGED = {
    # question: (preference for swift shown first, for base shown first)
    "q0": (1.0, 0.0),  # swift wins either way
    "q1": (1.0, 0.0),
    "q2": (1.0, 1.0),  # the place decides: half a win, a flip
    "q3": (0.5, 0.5),  # a tie
    "q4": (0.0, 1.0),  # base wins
    "q5": (0.75, 0.25),
}


def right_on(*numbers):
    wanted = {f"q{number}" for number in numbers}
    return lambda question, sample: "A" if question in wanted else "B"


def wins_of(run):
    tables = make_report([run]).document.parts[0].tables
    return next((table for table in tables if table.name == "wins"), None)


@pytest.fixture
def compared(tmp_path):
    """Base and swift with one conversation about each of six questions."""
    more = {"samples": 1, "temperatures": (1.0,)}
    run = make(tmp_path / "run", questions(6), right_on(0), **more)
    swift = make(
        run.evals_folder / "swift",
        questions(6),
        right_on(1),
        parent=run.manifest.id,
        split="test",
        extra={"recipe": {"name": "swift", "label": "SWiFt"}},
        **more,
    )
    return run, swift


def write(run, swift, judged, mark="ab" * 8, ended="2026-01-01T00:00:00+00:00"):
    ids = [
        {talk.example_id: talk.conversation_id for talk in each.conversations()}
        for each in (swift, run)
    ]
    with comparisons_file(run).open("a") as file:
        for question, preferences in judged.items():
            ours, theirs = (each[question] for each in ids)
            for (first, second), preferred in zip(
                ((ours, theirs), (theirs, ours)), preferences, strict=True
            ):
                one = Comparison(
                    first=first,
                    second=second,
                    judge="gpt-4o",
                    fingerprint=mark,
                    group_id=f"g{question[1:]}",
                    preferred=preferred,
                    ended=ended,
                )
                file.write(one.model_dump_json() + "\n")


def test_win_rates_of_twelve_comparisons_by_hand(compared):
    run, swift = compared
    assert wins_of(run) is None
    write(run, swift, JUDGED)
    (row,) = wins_of(run).rows
    name, judge, rate, wins, ties, losses, flips, p = row.cells
    assert (name, judge) == ("SWiFt over Base", "gpt-4o")
    # Values 1, 1, 1/2, 1/2, 0, 3/4: mean 3.75/6 = .625.
    assert rate.mean == 0.625
    assert (wins, ties, losses) == (3, 2, 1)
    assert flips == pytest.approx(100 / 6)
    # Deviations .375, .375, -.125, -.125, -.625, .125: squares sum to .71875; 6 groups.
    assert rate.error == pytest.approx((6 / 5 * 0.71875) ** 0.5 / 6)
    assert (rate.n, rate.groups) == (6, 6)
    assert 0.3 < p < 0.6  # t = .125 / .1548 with 5 degrees of freedom


def test_only_the_newest_rubric_and_whole_pairs_count(compared):
    run, swift = compared
    write(run, swift, {"q0": (0.0, 1.0)}, mark="cd" * 8, ended="2025-01-01T00:00:00+00:00")
    write(run, swift, {"q1": (1.0, 0.0), "q2": (1.0, None)})
    (row,) = wins_of(run).rows
    assert row.cells[3:6] == (1, 0, 0)


def test_win_rates_of_pages(tmp_path):
    more = {
        "task": "colbench-frontend",
        "protocol": "collaboration-frontend",
        "mode": "standard",
        "judge": "render-clip",
        "samples": 1,
        "temperatures": (1.0,),
    }
    asked = questions(4, "colbench-frontend")
    ours = {"q0": 0.9, "q1": 0.5, "q2": 0.1, "q3": 0.2}
    run = make(tmp_path / "run", asked, right_on(), overall=lambda q, k: ours.get(q), **more)
    make(
        run.evals_folder / "rival",
        asked,
        right_on(),
        overall=lambda q, k: 0.5,
        split="test",
        parent=run.manifest.id,
        model="openai/gpt-4o-2024-08-06",
        **more,
    )
    (row,) = wins_of(run).rows
    assert row.cells[0] == "rival over Base"
    assert (row.cells[2].mean, row.cells[3:6]) == (0.625, (2, 1, 1))
    table = make_report([run], paper=True).document.parts[0].tables[0]
    won = [column.key for column in table.columns].index("won")
    found = {row.cells[0]: row.cells[won] for row in table.rows if not row.printed}
    assert found["Base"].mean == 37.5  # one win and a tie of four
    assert found["rival"] is None
    names = [row.cells[0] for row in table.rows]
    assert table.rows[names.index("rival") + 1].cells[won].mean == pytest.approx(50)
