"""Every policy against Base on the page, as the report has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from multidict import MultiDict

from convbench.errors import QueryError
from convbench.reports.frame import read_settings
from convbench.store import Run
from convbench.viewer.figures import base_comparisons
from convbench.viewer.filters import facet_counts, list_page
from convbench.viewer.index import ViewIndex
from convbench.viewer.library import index_runs
from tests.helpers.viewer_runs import MUTE, RIGHT, WRONG, make, question
from tests.helpers.viewing import Looked, viewing

BASE = [RIGHT, WRONG, MUTE, RIGHT, None, WRONG, RIGHT, RIGHT]
TUNED = [WRONG, RIGHT, RIGHT, RIGHT, RIGHT, WRONG, MUTE, None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base and a child on eight test questions in four groups: two gained, two lost."""
    path = tmp_path_factory.mktemp("versus") / "run"
    asked = [question(n, split="test") for n in range(8)]
    run = make(path, asked, [(n, 0, said, {}) for n, said in enumerate(BASE)],
               {"rules": lambda k: float(k)})  # fmt: skip
    make(path / "evals" / "tuned", asked, [(n, 0, said, {}) for n, said in enumerate(TUNED)],
         {"rules": lambda k: float(k + (k % 3))}, "local:tuned",
         parent=run.manifest.id)  # fmt: skip
    return path


@pytest.fixture(scope="module")
def index(folder: Path) -> ViewIndex:
    return index_runs([folder], lambda text: None)


def test_differences_are_the_reports(folder: Path, index: ViewIndex) -> None:
    """Accuracy and reward, with the clustered error of the report's own pairs."""
    (row,) = base_comparisons(index)["rows"]
    (setting,) = read_settings([Run.open(folder)])
    tuned = next(policy for policy in setting.policies if policy.name == "tuned")
    base = setting.base_of(tuned)
    assert base is not None
    wanted = setting.difference(tuned, base, "correct")
    assert wanted is not None
    assert wanted.interval is not None
    accuracy, reward = row["measures"]
    assert accuracy["difference"] == pytest.approx(wanted.mean, abs=1e-12)
    assert accuracy["margin"] == pytest.approx(wanted.interval[1] - wanted.mean, abs=1e-12)
    assert (accuracy["n"], accuracy["groups"], accuracy["p"]) == (6, 4, pytest.approx(wanted.p))
    both = [k for k in range(8) if BASE[k] is not None and TUNED[k] is not None]
    assert reward["n"] == len(both)
    assert reward["difference"] == pytest.approx(sum(k % 3 for k in both) / len(both) / 10)
    assert row["matrix"] == {
        "correct": {"wrong": 1, "correct": 1, "unparsed": 1, "failed": 1},
        "wrong": {"correct": 1, "wrong": 1},
        "unparsed": {"correct": 1},
        "failed": {"correct": 1},
    }
    assert (row["pairs"], row["gained"], row["lost"], row["apart"]) == (8, 2, 2, [])


def test_each_cell_is_a_list(index: ViewIndex) -> None:
    """And the numbers beside the choices are those of the pairs."""
    base, other = (run.manifest.id for run in index.runs)
    (row,) = base_comparisons(index)["rows"]
    for was, cells in row["matrix"].items():
        for now, n in cells.items():
            asked = MultiDict(versus=base, run=other, was=was, result=now, split="test")
            found = list_page(index, asked)
            assert found["total"] == n
            assert {one["was"] for one in found["rows"]} == {was}
            counts = facet_counts(index, asked)
            assert dict(counts["result"])[now] == n
            assert sum(m for _, m in counts["result"]) == sum(cells.values())
    back = base_comparisons(index, other)["rows"]
    assert [(one["gained"], one["lost"]) for one in back] == [(2, 2)]
    assert back[0]["measures"][0]["difference"] == -row["measures"][0]["difference"]
    for wrong in ({"versus": "nope"}, {"versus": base, "was": "fine"}):
        with pytest.raises(QueryError, match=r"found '(nope|fine)'"):
            list_page(index, MultiDict(wrong))
    with pytest.raises(QueryError, match="base: found"):
        base_comparisons(index, "nope")


def test_facets_follow_each_other(index: ViewIndex) -> None:
    """The numbers beside a choice are those of every other filter, its own left out."""
    for asked in (MultiDict(result="correct"), MultiDict(result="wrong", policy="local:tuned")):
        counts = facet_counts(index, asked)
        for name, values in counts.items():
            rest = [(key, value) for key, value in asked.items() if key != name]
            for value, n in values:
                assert list_page(index, MultiDict([*rest, (name, str(value))]))["total"] == n


def test_one_click_from_the_first_page_to_what_was_lost(look: Looked, folder: Path) -> None:
    with viewing(folder) as viewer:
        page = look.open(viewer.page())
        card = page.locator(".pairing")
        card.wait_for()
        assert "8 pairs" in card.inner_text()
        assert page.locator(".totals", has_text="Correct").count() == 0  # no pool of both
        card.get_by_role("link", name="2 lost").click()
        page.locator(".count strong", has_text="2").wait_for()
        assert page.get_by_role("checkbox", name="correct").first.is_checked()
        page.get_by_role("link", name="beside Base's").first.click()
        page.locator(".column").nth(1).wait_for()
        assert page.locator(".column").count() == 2
        page.locator(".column del", has_text="B").first.wait_for()
        page.locator(".column ins", has_text="A").first.wait_for()
