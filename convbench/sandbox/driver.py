"""Playwright's driver under a guard (`convbench.guard`), with which all that it starts ends.

It ends with the loop's thread too, so with this program, however that ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from convbench.guard import guarded

LATE_S = 1.0
"""For tasks to end once their browser has."""
_scratch: ContextVar[Path] = ContextVar("_scratch")
_announce: ContextVar[Callable[[int], None]] = ContextVar("_announce")


async def start_driver(scratch: Path, announce: Callable[[int], None]) -> Any:
    """Return a driver that was started, in a `Loop`; it writes its files below `scratch`,
    which goes with it.

    `announce` is called with its guard's number as soon as there is one, whether or not the driver
    answers. Raises whatever Playwright raises.
    """
    from playwright.async_api import async_playwright

    _scratch.set(scratch)
    _announce.set(announce)
    return await async_playwright().start()


class Loop(asyncio.SelectorEventLoop):
    """An event loop of which every subprocess is a driver that `start_driver` starts.

    Playwright itself tells no number of its driver, and starts it in our process group, where
    Ctrl-C meets it.
    """

    async def subprocess_exec(self, protocol_factory: Any, *command: Any, **options: Any) -> Any:
        """Start it under its guard, in a session of its own."""
        scratch = str(_scratch.get())
        options["env"] = {**options["env"], "TMPDIR": scratch}
        transport, protocol = await super().subprocess_exec(
            protocol_factory, *guarded(command, scratch=scratch), start_new_session=True, **options
        )
        _announce.get()(transport.get_pid())
        return transport, protocol


async def finish_tasks() -> None:
    """Let tasks see the end of what they wait for; after LATE_S they are cancelled."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    late = (await asyncio.wait(left, timeout=LATE_S))[1] if left else set()
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=LATE_S)
