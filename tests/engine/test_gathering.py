"""Replies that come within moments of each other are taken together, and none waits long."""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from convbench.engine import gathering
from convbench.engine.caller import Caller
from convbench.engine.gathering import LONGEST_S, GatheringLoop, GatheringSelector
from convbench.engine.jobs import run_in_loop
from convbench.models import open_model
from convbench.schema import Sampling
from tests.support.chat.plan import Plan
from tests.support.provider import Provider


@contextmanager
def pipes(selector: GatheringSelector, count: int) -> Iterator[list[int]]:
    """Watch so many pipes; yield their ends for writing."""
    found = [os.pipe() for _ in range(count)]
    for reading, _ in found:
        selector.register(reading, selectors.EVENT_READ)
    try:
        yield [writing for _, writing in found]
    finally:
        for pair in found:
            for end in pair:
                os.close(end)


def sleep_is(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """Replace what the selector alone sleeps with: other tests' threads sleep as ever."""
    monkeypatch.setattr(gathering, "time", SimpleNamespace(sleep=sleep))


def comes_during_the_wait(
    monkeypatch: pytest.MonkeyPatch, selector: GatheringSelector, end: int
) -> None:
    """Write to a pipe as soon as the selector begins to wait for it."""
    real = selectors.DefaultSelector.select

    def select(self: selectors.DefaultSelector, timeout: float | None = None) -> object:
        if self is selector and timeout:
            os.write(end, b"x")
        return real(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)


def test_what_follows_within_the_wait_comes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(GatheringSelector()) as selector, pipes(selector, 2) as (one, two):
        selector.note_reply(60.0)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            os.write(two, b"x")

        sleep_is(monkeypatch, sleep)
        comes_during_the_wait(monkeypatch, selector, one)
        assert len(selector.select(10)) == 2
        assert slept == [LONGEST_S]


def test_nothing_waits_where_it_came_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: float) -> None:
        raise AssertionError("waited, though there was something to do")

    sleep_is(monkeypatch, never)
    with closing(GatheringSelector()) as selector, pipes(selector, 2) as (one, _):
        selector.note_reply(60.0)
        os.write(one, b"x")
        assert len(selector.select(10)) == 1
        assert selector.select(0)  # as where a loop has other things to do


def test_nothing_waits_before_any_reply_or_for_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep_is(monkeypatch, slept.append)
    with closing(GatheringSelector()) as selector, pipes(selector, 1) as (one,):
        comes_during_the_wait(monkeypatch, selector, one)
        assert len(selector.select(10)) == 1
    with closing(GatheringSelector()) as selector:
        selector.note_reply(60.0)
        assert selector.select(0.05) == []
    assert slept == []


def test_a_reply_waits_a_hundredth_of_the_quickest_at_most() -> None:
    with closing(GatheringSelector()) as selector:
        selector.note_reply(0.2)
        assert selector.pause_s == pytest.approx(0.002)
        selector.note_reply(0.02)
        assert selector.pause_s == pytest.approx(0.0002)
        selector.note_reply(0.2)
        assert selector.pause_s == pytest.approx(0.000202)  # one quick reply is not forgotten soon
        for _ in range(1000):
            selector.note_reply(9.0)
        assert selector.pause_s == LONGEST_S


def test_calls_tell_how_long_they_took() -> None:
    """A real call in the loop of a command."""
    with Provider(Plan(latency_s=0.1)) as provider:

        async def main() -> float:
            model = open_model("openai/gpt-test", api_base=provider.api_base)
            try:
                await Caller().complete(
                    model, [{"role": "user", "content": "hi"}], Sampling(), key="k"
                )
            finally:
                await model.aclose()
            loop = asyncio.get_running_loop()
            assert isinstance(loop, GatheringLoop)
            return loop.gathering.pause_s

        pause = run_in_loop(main)
    assert 0.001 <= pause <= LONGEST_S


def test_another_loop_is_told_nothing() -> None:
    async def main() -> None:
        gathering.note_reply_time(1.0)

    asyncio.run(main())
