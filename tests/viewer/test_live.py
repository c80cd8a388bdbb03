"""The viewer beside a run that grows: what the index takes in, and what the page shows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from multidict import MultiDict

from convbench.store import Run
from convbench.viewer.figures import base_comparisons, overview_figures
from convbench.viewer.filters import list_page
from convbench.viewer.follow import GrowingIndex, run_status
from convbench.viewer.index import build_index
from tests.helpers.viewer_runs import QUESTIONS, RIGHT, WRONG, judged, make, said
from tests.helpers.viewing import Looked, viewing


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of two conversations, one of them failed; judge `rules` gave the first 8."""
    talks: Any = [(0, 0, RIGHT, {}), (1, 0, None, {})]
    return make(tmp_path / "run", QUESTIONS, talks, {"rules": lambda k: 8.0})


@pytest.fixture
def growing(run: Run, monkeypatch: pytest.MonkeyPatch) -> GrowingIndex:
    """Its index, which takes in what is new whenever it is asked."""
    monkeypatch.setattr("convbench.viewer.follow.EASE", 0.0)
    return GrowingIndex(lambda: [run, *run.child_runs()])


def rows(growing: GrowingIndex) -> dict[str, tuple[str, Any]]:
    """Result and reward of judge `rules` by question."""
    found = list_page(growing.index, MultiDict())["rows"]
    place = growing.index.judges.index("rules")
    return {row["question"][-7]: (row["result"], row["rewards"][place]) for row in found}


def test_an_index_that_grew_is_the_one_that_a_new_start_makes(
    run: Run, growing: GrowingIndex
) -> None:
    """New rows, a second attempt at a failed one, verdicts before and after, one given again:
    figures, list and pairs as of a fresh index."""
    said(run, 2, WRONG)
    judged(run, 2, "rules", 4.0)
    said(run, 1, RIGHT, attempt=1)
    assert growing.take_in() == 2
    assert rows(growing) == {"0": ("correct", 0.8), "1": ("correct", None), "2": ("wrong", 0.4)}
    judged(run, 1, "rules", 7.0)
    judged(run, 2, "rules", 5.0)
    said(run, 3, WRONG)
    with run.conversations_file.open("ab") as file:
        file.write(b'{"torn')
    assert growing.take_in() == 3
    fresh = build_index([run])
    assert rows(growing) == {
        "0": ("correct", 0.8), "1": ("correct", 0.7), "2": ("wrong", 0.5), "3": ("wrong", None),
    }  # fmt: skip
    grown, anew = overview_figures(growing.index), overview_figures(fresh)
    assert {k: grown[k] for k in ("totals", "methods", "facets", "rewards", "runs")} == {
        k: anew[k] for k in ("totals", "methods", "facets", "rewards", "runs")
    }
    for name in ("conversation_id", "q"):
        assert len({row[name] for row in list_page(growing.index, MultiDict())["rows"]}) == 4
    for row in list_page(growing.index, MultiDict())["rows"]:
        name = row["conversation_id"]
        assert growing.index.read_conversation(name)[1] == fresh.read_conversation(name)[1]
    found = list_page(growing.index, MultiDict(where="n_turns = 2 AND conversation_id IN "
                    "(SELECT conversation_id FROM verdicts WHERE overall > 6)"))  # fmt: skip
    assert found["total"] == 2
    assert growing.take_in() == 3


def test_new_judges_runs_and_rewritten_files_make_the_index_anew(
    run: Run, growing: GrowingIndex
) -> None:
    judged(run, 0, "strict", 2.0)
    growing.take_in()
    assert growing.index.judges == ["rules", "strict"]
    make(run.path / "evals" / "tuned", QUESTIONS, [(0, 0, WRONG, {})], {}, "local:tuned",
         parent=run.manifest.id)  # fmt: skip
    growing.take_in()
    assert growing.index.total == 3
    pair = base_comparisons(growing.index)["rows"][0]
    assert (pair["lost"], pair["gained"], pair["pairs"]) == (1, 0, 1)
    lines = run.conversations_file.read_bytes().splitlines(keepends=True)
    other = run.path / "other"
    other.write_bytes(lines[0])
    other.replace(run.conversations_file)
    growing.take_in()
    assert growing.index.total == 2


def test_what_cannot_be_read_is_told_and_the_page_goes_on(run: Run, growing: GrowingIndex) -> None:
    with run.conversations_file.open("ab") as file:
        file.write(b'{"key": 5}\n')
    found = run_status(growing)
    assert "conversations.jsonl" in found["problem"]
    assert found["version"] == 1
    assert len(rows(growing)) == 2


def test_pace_cost_and_what_is_left_are_told(run: Run, growing: GrowingIndex) -> None:
    """Three in the last minute of the twelve planned, of which one failed and comes again."""
    now = time.time()
    for number, ago in ((2, 60), (3, 30), (4, 1)):
        at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now - ago))
        said(run, number, RIGHT, ended=at)
    (one,) = run_status(growing)["growing"]
    assert (one["conversations"], one["failed"], one["planned"]) == (5, 1, 12)
    assert one["pace"] == pytest.approx(3.0, rel=0.2)
    assert one["left_s"] == pytest.approx(8 / 3 * 60, rel=0.2)
    assert one["usd"] == pytest.approx(4 * 0.003)


def test_what_is_planned_is_told_without_reading_the_questions(
    run: Run, growing: GrowingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page asks every 2.5 seconds, and there may be a million questions."""
    monkeypatch.setattr(Run, "examples", property(lambda run: pytest.fail("questions are read")))
    (one,) = run_status(growing)["growing"]
    assert one["planned"] == 12


def test_the_overview_counts_what_was_appended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convbench.viewer.follow.EASE", 0.0)
    with viewing(run.path) as viewer:
        assert viewer.json("/api/overview")["totals"]["conversations"] == 2
        said(run, 2, WRONG)
        viewer.json("/api/pulse")
        assert viewer.json("/api/overview")["totals"]["conversations"] == 3


@pytest.mark.exhaustive
def test_page_follows_without_a_reload(look: Looked, run: Run) -> None:
    """List, overview and an open conversation; what was unfolded, typed and focused stays."""
    with viewing(run.path) as viewer:
        page = look.open(viewer.page("#/list"))
        page.locator(".count strong", has_text="2").wait_for()
        page.get_by_label("SQL condition").fill("words > ")
        said(run, 2, WRONG)
        page.locator(".count strong", has_text="3").wait_for()
        assert page.get_by_label("SQL condition").input_value() == "words > "
        page.locator("#live").get_by_text("3 of 12 conversations").wait_for()
        page.locator("tbody a", has_text="number 2").click()
        page.locator(".verdicts", has_text="Not judged yet").wait_for()
        page.locator("details.think summary").click()
        judged(run, 2, "rules", 4.0)
        page.locator(".verdict .reward", has_text="0.40").wait_for()
        assert page.locator("details.think").get_attribute("open") is not None
        page.get_by_role("link", name="Overview").click()
        page.locator(".totals strong", has_text="3").first.wait_for()
        said(run, 3, RIGHT)
        page.locator(".totals strong", has_text="4").first.wait_for()
