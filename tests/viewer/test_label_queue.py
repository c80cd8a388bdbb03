"""The labelling queue in a real browser: by keyboard alone, blind, and kept as it was typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench.commands.gold import GoldOptions, label_sample
from convbench.judges.gold.labels import newest_labels
from convbench.store import Run
from tests.helpers.viewer_runs import world
from tests.helpers.viewing import Looked, viewing

TOLD = ("local:base", "local:checkpoints", "tuned", "strict", "rules")
"""Names of policies and judges."""


@pytest.fixture
def drawn(tmp_path: Path) -> Run:
    """A run of two policies of which eight conversations were drawn, for two people each."""
    run = world(tmp_path / "world")
    said = label_sample(
        GoldOptions((str(run.path),), draw=8, judge="rules", split="all", raters=2, seed=1)
    )
    assert said.drawn is not None
    return run


def typed(page: Any, *keys: str) -> None:
    """Press keys, or type a text."""
    for key in keys:
        if len(key) == 1 or key in ("Enter", "Escape"):
            page.keyboard.press(key)
        else:
            page.keyboard.type(key)


def test_a_person_labels_by_keyboard_alone(look: Looked, drawn: Run) -> None:
    with viewing(drawn.path) as viewer:
        page = look.open(viewer.page("#/label"))
        typed(page, "Ann Lee", "Enter")
        page.locator(".label-form").wait_for()
        form = page.locator(".label-form")
        names = form.locator(".metric input").evaluate_all("nodes => nodes.map(n => n.name)")
        assert "overall" in names
        left = int(page.locator(".chip").first.inner_text().split()[0])

        def question() -> str:
            return str(page.locator("article .turns").inner_text())

        before = question()
        assert "NaN" not in before
        assert "undefined" not in before
        for _ in names:  # one number a metric, then the note, each ended by Enter
            typed(page, "7", "Enter")
        typed(page, "clear and right", "Enter")
        page.locator(".chip", has_text=f"{left - 1} left for you").wait_for()
        # Skip with a reason: out of the field, x, the reason, Enter. A reason is needed.
        typed(page, "Escape", "x", "Enter")
        page.locator(".label-form .alert", has_text="Say why").wait_for()
        typed(page, "in a language I cannot read", "Enter")
        page.locator(".chip", has_text=f"{left - 2} left for you").wait_for()
        # Back to the one before, which keeps what was said; a number off the scale is refused.
        typed(page, "Escape", "b")
        page.get_by_role("heading", name="Change your score").wait_for()
        assert page.locator("[name=skipped]").input_value() == "in a language I cannot read"
        for _ in names:
            typed(page, "99", "Enter")
        typed(page, "Enter")
        page.locator(".label-form .alert", has_text="expected a number from").wait_for()
        look.troubles.clear()  # the browser reports the 400 itself
        assert before != question() or left == 1
        seen = page.content()
        assert not [name for name in TOLD if name in seen]
    kept = newest_labels(drawn)
    assert {who for _, who in kept} == {"Ann Lee"}
    scored = [x for x in kept.values() if x.skipped is None]
    assert [x.scores for x in scored] == [dict.fromkeys(names, 7.0)]
    assert scored[0].note == "clear and right"
    assert scored[0].blind
    assert sum(x.skipped == "in a language I cannot read" for x in kept.values()) == 1


def test_what_is_sent_tells_nothing_and_each_person_has_a_queue(drawn: Run) -> None:
    with viewing(drawn.path) as viewer:
        assert viewer.json("/api/overview")["gold"] > 0
        one = viewer.json("/api/gold?rater=Ann")
        text = str(one)
        ids = [c.conversation_id for r in (drawn, *drawn.child_runs()) for c in r.conversations()]
        assert not [name for name in (*TOLD, *ids) if name in text]
        key, count = one["item"]["key"], one["progress"][0]["left"]
        said = {"key": key, "rater": "Ann", "scores": {"overall": 4}, "note": ""}
        assert viewer.json("/api/gold", "POST", said) == {"kept": True}
        assert viewer.json("/api/gold?rater=Ann")["progress"][0]["left"] == count - 1
        # Another person still has it, first: it lacks one label only.
        two = viewer.json("/api/gold?rater=Bo")
        assert (two["item"]["key"], two["progress"][0]["left"]) == (key, count)
        assert two["item"]["mine"] is None
        assert "Ann" not in str(two["item"])
        viewer.json("/api/gold", "POST", {**said, "rater": "Bo", "scores": {"overall": 6}})
        third = viewer.json("/api/gold?rater=Cy")  # two were asked for
        assert third["item"]["key"] != key
        assert third["progress"][0]["done"] == 1
        assert viewer.json("/api/gold?rater=Bo&back=1")["item"]["mine"]["scores"] == {"overall": 6}
        (row,) = third["progress"][0]["agreement"]
        assert row["both"] == 1


REFUSED = [
    ({"scores": {"overall": 11}}, "from 0 to 10"),
    ({"scores": {"overall": True}}, "expected a number"),
    ({"scores": {"fame": 3}}, "found 'fame'"),
    ({"scores": {}}, "no overall"),
    ({"rater": "a\nb"}, "rater"),
    ({"rater": "x" * 81}, "rater"),
    ({"key": "nothing"}, "not in the queue"),
    ({"skipped": "  ", "scores": {}}, "reason"),
    ({"skipped": "why"}, "reason"),
    ({"note": "x" * 10_001}, "note"),
]


def test_what_is_no_label_is_refused(drawn: Run) -> None:
    with viewing(drawn.path) as viewer:
        key = viewer.json("/api/gold?rater=Ann")["item"]["key"]
        for change, said in REFUSED:
            label = {"key": key, "rater": "Ann", "scores": {"overall": 4}, "note": "", **change}
            assert said in viewer.json("/api/gold", "POST", label)["error"], change
        assert "JSON" in viewer.json("/api/gold", "POST", [1])["error"]
        assert (
            viewer.ask("/api/gold", "POST", b"{", Content_Type="application/json")[0].status == 400
        )
        assert viewer.ask("/api/gold", "POST", b"{}", Content_Type="text/plain")[0].status == 415
        assert viewer.ask("/api/gold?rater=Ann", cookie=False)[0].status == 403
    assert newest_labels(drawn) == {}
