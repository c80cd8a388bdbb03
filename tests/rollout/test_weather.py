"""Hard weather from the command line: build and judge against a provider that fails a lot."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from convbench.store import Run
from convbench.viewer.library import index_runs
from convbench.viewer.talk import SAME
from convbench.viewer.talk import turn_calls as calls_of
from tests.helpers.cli import convbench, get, post, records, said
from tests.helpers.viewing import browser, viewing

FAULTS = {
    "429": 0.04, "429_retry_after": 0.03, "500": 0.03, "reset": 0.03, "hang": 0.02,
    "truncated": 0.02, "empty": 0.03,
}  # fmt: skip
"""A fifth of all calls."""
QUESTIONS = 40


def weather(url: str, faults: dict[str, float]) -> None:
    post(url, "/_config", {"faults": faults, "hang_s": 30.0, "retry_after": 0.2, "seed": 3})
    post(url, "/_reset")


def calls(url: str) -> tuple[str, ...]:
    return ("--api-base", f"{url}/v1", "--concurrency", "32", "--timeout", "4")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_build_and_judge_complete_with_nothing_lost_or_doubled(
    provider: str, tmp_path: Path
) -> None:
    build = ("build", "demo", "--model", "openai/m", "--tasks", str(QUESTIONS))
    judge = ("judge", "--judge", "openai/j", "--run")
    post(provider, "/_reset")
    assert convbench(tmp_path, *build, "--run", "calm", *calls(provider)).code == 0
    assert convbench(tmp_path, *judge, "calm", *calls(provider)).code == 0
    calm = get(provider, "/_stats")
    weather(provider, FAULTS)
    done = convbench(tmp_path, *build, "--run", "storm", *calls(provider))
    judged = convbench(tmp_path, "judge", "--run", "storm", "--judge", "openai/j", *calls(provider))
    stats = get(provider, "/_stats")
    weather(provider, {})

    assert done.code == 0, done.err
    assert judged.code == 0, judged.err
    assert said(tmp_path / "storm") == said(tmp_path / "calm")
    verdicts = records(tmp_path / "storm" / "verdicts.jsonl")
    assert len(verdicts) == QUESTIONS * 3
    assert len({verdict["conversation_id"] for verdict in verdicts}) == len(verdicts)
    assert all(verdict["failure"] is None for verdict in verdicts)
    # Two conversations may well send the same request; none is answered oftener than in calm.
    assert stats["repeats"] == calm["repeats"], "a usable answer was asked for twice"
    assert set(FAULTS) <= set(stats["faults"]), "the weather was not as hard as planned"
    _calls_are_told(tmp_path / "storm")
    _calls_are_shown(tmp_path / "storm", tmp_path / "calm")


def _calls_are_shown(storm: Path, calm: Path) -> None:
    """Call, clicked in a browser: the attempts, the request and the reply."""
    index = index_runs([storm], lambda text: None)
    told = {one.conversation_id: calls_of(index, one.conversation_id)
            for one in Run.open(storm).conversations()}  # fmt: skip
    name, turn, call = next(
        (name, int(turn), call) for name, turns in told.items() for turn, (call,) in turns.items()
        if call["lost"]
    )  # fmt: skip
    said = orjson.loads(call["reply"])["content"]
    with browser() as chromium:
        page = chromium.new_page()
        for run, failed in ((storm, True), (calm, False)):
            with viewing(run) as viewer:
                (row,) = [one for one in viewer.json("/api/list?limit=500")["rows"]
                          if not failed or one["conversation_id"] == name][:1]  # fmt: skip
                page.goto(viewer.page(f"#/c/{row['conversation_id']}"))
                spoken = sorted(map(int, viewer.json(f"/api/calls/{row['conversation_id']}")))
                place = spoken.index(turn) if failed else 0
                page.get_by_role("button", name="Call", exact=True).nth(place).click()
                shown = page.locator(".call-of")
                shown.wait_for()
                shown.get_by_text(SAME).wait_for()
                asked = orjson.loads(shown.locator("pre").first.inner_text())
                assert asked["model"] == "openai/m"
                assert asked["messages"][-1]["role"] == "user"
                if failed:
                    shown.get_by_text(f"{len(call['lost']) + 1} attempts").wait_for()
                    assert asked == orjson.loads(call["request"]), "to the last digit"
                    replied = orjson.loads(shown.locator("pre").last.inner_text())
                    assert replied["content"] == said
                page.get_by_role("button", name="Hide the call").click()
                shown.wait_for(state="hidden")


def _calls_are_told(path: Path) -> None:
    """Of every turn the viewer tells the very request, the reply, and what was tried in vain."""
    index = index_runs([path], lambda text: None)
    lost = 0
    for one in Run.open(path).conversations():
        told = calls_of(index, one.conversation_id)
        spoken = [k for k, turn in enumerate(one.turns) if turn.finish_reason != "scripted"]
        assert sorted(told) == [str(k) for k in spoken]
        for k in spoken:
            (call,) = told[str(k)]
            assert call["proof"] == SAME
            assert orjson.loads(call["reply"])["content"] == one.turns[k].content
            assert orjson.loads(call["request"])["messages"][-1]["role"] == "user"
            lost += len(call["lost"])
    assert lost > QUESTIONS / 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"api_keys": ["right"]}, "OPENAI_API_KEY"),
        ({"models": ["another"]}, "m"),
    ],
    ids=["wrong key", "unknown model"],
)
def test_what_no_retry_mends_is_said_at_once(
    provider: str, tmp_path: Path, config: dict[str, object], words: str
) -> None:
    post(provider, "/_config", config)
    try:
        done = convbench(
            tmp_path, "build", "demo", "--model", "openai/m", "--tasks", "5", "--run", "r",
            "--concurrency", "1", "--api-base", f"{provider}/v1",
        )  # fmt: skip
        stats = get(provider, "/_stats")
    finally:
        post(provider, "/_config", {"api_keys": None, "models": None, "refuse": {}})
    assert done.code == 1, done.out + done.err
    stopped = [line for line in done.err.splitlines() if line.startswith("stopped:")]
    assert len(stopped) == 1, done.err
    assert words in stopped[0]
    assert stats["calls"] <= 3, "it was tried again though nothing could mend it"


def test_a_context_that_is_too_long_fails_one_conversation_not_the_run(
    provider: str, tmp_path: Path
) -> None:
    post(provider, "/_config", {"context_tokens": 840})
    try:
        done = convbench(
            tmp_path, "build", "demo", "--model", "openai/m", "--tasks", "8", "--run", "r",
            "--api-base", f"{provider}/v1",
        )  # fmt: skip
    finally:
        post(provider, "/_config", {"context_tokens": None})
    failures = [record["failure"] for record in records(tmp_path / "r" / "conversations.jsonl")]
    assert done.code == 0, done.err
    assert len(failures) == 24
    assert 0 < sum(map(bool, failures)) < 24, "expected some to be too long, not all"
    assert "FatalModelError" in {failure["kind"] for failure in failures if failure}


def test_a_parameter_that_can_be_left_out_is_left_out_with_a_note(
    provider: str, tmp_path: Path
) -> None:
    post(provider, "/_config", {"refuse": {"temperature": "unsupported_value"}})
    try:
        done = convbench(
            tmp_path, "build", "demo", "--model", "openai/m", "--tasks", "5", "--run", "r",
            "--api-base", f"{provider}/v1",
        )  # fmt: skip
    finally:
        post(provider, "/_config", {"refuse": {}})
    assert done.code == 0, done.err
    assert done.err.count("temperature") == 1, done.err
