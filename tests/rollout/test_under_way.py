"""How many conversations are under way: enough that no call's place stays empty."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from convbench.rollout.calls import max_conversations
from tests.helpers.cli import convbench
from tests.support.provider import Provider

AT_ONCE, CALLS = 4, 18


class Waves(Provider):
    """Holds calls until as many are there as may be, or all that are left; then answers them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._kept: list[asyncio.Future[None]] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Hold a call, then answer it as ever."""
        reply = await super().handle(request)
        held = asyncio.get_running_loop().create_future()
        self._kept.append(held)
        if len(self._kept) == min(AT_ONCE, CALLS - sum(self.sizes)):
            self._let_go()
        while not held.done():  # a place that stays empty must not hang the test
            await asyncio.wait([held], timeout=30.0)
            if not held.done():
                self._let_go()
        return reply

    def _let_go(self) -> None:
        self.sizes.append(len(self._kept))
        for held in self._kept:
            if not held.done():
                held.set_result(None)
        self._kept.clear()


def test_no_place_is_empty_while_turns_are_to_be_had(tmp_path: Path) -> None:
    """Six conversations of three turns, four calls in flight: five waves, where four conversations
    at once would take six."""
    with Waves() as server:
        done = convbench(
            tmp_path, "build", "demo", "--tasks", "2", "--model", "openai/scripted",
            "--api-base", f"{server.url}/v1", "--concurrency", str(AT_ONCE), "--run", "run",
        )  # fmt: skip
    assert done.code == 0, done.err
    assert server.sizes == [4, 4, 4, 4, 2]


def test_a_model_that_keeps_each_conversation_s_cache_gets_no_more_than_it_says() -> None:
    class Local:
        concurrency = 160

    class Served:
        concurrency = None

    assert max_conversations(8, [Served()]) == 12  # type: ignore[list-item]
    assert max_conversations(8, [Served(), Local()]) == 8  # type: ignore[list-item]
