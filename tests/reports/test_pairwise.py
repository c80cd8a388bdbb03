"""Win rates from comparisons in both orders, and from the scores of pages."""

import pytest

from convbench.schema.judge import Comparison
from convbench.store.notes import comparisons_file
from tests.helpers.reported import beside, column, learner, names, right_on, tables_of
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
ONE = {"samples": 1, "temperatures": (1.0,)}


@pytest.fixture
def compared(tmp_path):
    """Base and swift with one conversation about each of six questions."""
    run = make(tmp_path / "run", questions(6), right_on(0), **ONE)
    return run, learner(run, "swift", right_on(1), "SWiFt", **ONE)


def write(run, swift, judged, mark="ab" * 8, ended="2026-01-01T00:00:00+00:00"):
    ours, theirs = (
        {talk.example_id: talk.conversation_id for talk in each.conversations()}
        for each in (swift, run)
    )
    with comparisons_file(run).open("a") as file:
        for name, preferences in judged.items():
            orders = ((ours[name], theirs[name]), (theirs[name], ours[name]))
            for (first, second), preferred in zip(orders, preferences, strict=True):
                one = Comparison(
                    first=first, second=second, judge="gpt-4o", fingerprint=mark,
                    group_id=f"g{name[1:]}", preferred=preferred, ended=ended,
                )  # fmt: skip
                file.write(one.model_dump_json() + "\n")


def test_win_rates_of_twelve_comparisons_by_hand(compared):
    run, swift = compared
    assert "wins" not in tables_of(run)
    write(run, swift, JUDGED)
    (row,) = tables_of(run)["wins"].rows
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
    (row,) = tables_of(run)["wins"].rows
    assert row.cells[3:6] == (1, 0, 0)


def test_pages_won_over_gpt_4o(tmp_path):
    task = "colbench-frontend"
    more = {"protocol": "collaboration-frontend", "mode": "standard", "judge": "render-clip", **ONE}
    ours = {"q0": 0.9, "q1": 0.5, "q2": 0.1, "q3": 0.2}
    run = make(tmp_path / "run", questions(4, task), right_on(), task=task,
               overall=lambda q, k: ours.get(q), **more)  # fmt: skip
    beside(run, "rival", right_on(), overall=lambda q, k: 0.5, model="openai/gpt-4o-2024-08-06",
           **more)  # fmt: skip
    tables = tables_of(run, paper=True)
    won = column(tables["results"], "won")
    assert won["Base"].mean == 37.5  # one win and a tie of four
    assert won["rival"] is None
    shown = names(tables["results"])
    printed = tables["results"].rows[shown.index("rival") + 1]
    assert printed.printed
    assert printed.cells[[c.key for c in tables["results"].columns].index("won")].mean == 50
