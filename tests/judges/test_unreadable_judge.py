"""A judge that never says a score is not asked to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench.engine import RetryPolicy
from convbench.store import Run
from tests.helpers import stages
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call, scripted_reply
from tests.support.provider import Provider

MOST, ASKS, CALLS = RetryPolicy().unreadable, 3, 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty questions, two conversations each, and the same again."""
    folder = tmp_path_factory.mktemp("unreadable")
    for name in ("one", "other"):
        stages.build(
            "demo",
            model="scripted:policy",
            run=folder / name,
            samples=2,
            temperatures=(0.7,),
            concurrency=CALLS,
        )
    return folder / "one"


@pytest.mark.parametrize(("spec", "more"), [
    ("rubric", {}),
    ("relative", {}),
    ("pairwise", {"pairwise": True}),
])  # fmt: skip
def test_it_is_stopped_after_ten_in_a_row(run: Path, spec: str, more: dict[str, Any]) -> None:
    if more:
        more = {**more, "pairwise": (str(run), str(run.parent / "other"))}
    with Provider(Plan(), reply=lambda call: "A fine talk.") as server:
        name, more = f"{spec}@openai/mute-{len(more)}", {"concurrency": CALLS, **more}
        (judged,) = stages.judge_result(run, name, api_base=server.api_base, **more).summaries
        asked = server.stats.calls
    assert str(judged.jobs.stopped).startswith(f"{MOST} results in a row could not be parsed")
    assert "no readable reply in 3 attempts" in str(judged.jobs.stopped)
    assert MOST * ASKS <= asked <= (MOST + CALLS) * ASKS
    assert judged.failed_count >= MOST


def test_one_that_says_a_score_now_and_then_is_asked_to_the_end(run: Path) -> None:
    said = iter(range(1000))

    def now_and_then(call: Call) -> str:
        return scripted_reply(call) if next(said) % 5 == 4 else "A fine talk."

    with Provider(Plan(), reply=now_and_then) as server:
        more = {"api_base": server.api_base, "concurrency": CALLS}
        done = stages.judge_result(run, "openai/fickle", **more)
        (judged,) = done.summaries
    assert judged.jobs.stopped is None
    assert judged.jobs.done + judged.failed_count == sum(1 for _ in Run.open(run).conversations())
