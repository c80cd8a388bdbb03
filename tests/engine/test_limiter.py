"""Slots of an endpoint, pauses that it asks for, and waits between tries."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from convbench.engine import Caller, RetryPolicy
from convbench.errors import TransientModelError
from convbench.models.scripted import ScriptedModel
from convbench.schema import Completion
from tests.helpers.talk import run_talk


class Counting(ScriptedModel):
    """A served model that counts its calls in flight."""

    flying = most = 0

    def __init__(self) -> None:
        super().__init__()
        self.ref = "openai/any"

    async def complete(self, *args: Any, key: str) -> Completion:
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0.001)
        self.flying -= 1
        return Completion("A")


def test_no_more_calls_than_the_limit_are_in_flight() -> None:
    model = Counting()
    seen = run_talk(Caller(retry=RetryPolicy(concurrency=5)), model, range(60), turns=1)
    assert (len(seen.done), model.most) == (60, 5)


def test_a_pause_holds_back_every_call_of_its_endpoint() -> None:
    start = time.monotonic()
    pauses = {"openai/any": start + 0.2, "another": start + 60}
    assert len(run_talk(Caller(pauses=pauses), Counting(), range(9), turns=1).done) == 9
    assert time.monotonic() - start >= 0.2


@pytest.mark.parametrize(("asked", "tries", "least", "most"), [
    (None, 1, 0.25, 0.5), (None, 3, 1.0, 2.0), (None, 50, 15.0, 30.0), (7.0, 1, 7.0, 7.0),
    (86400.0, 1, 120.0, 120.0), (-5.0, 1, 0.25, 0.5),
])  # fmt: skip
def test_backoff_doubles_up_to_its_bound_and_obeys_the_endpoint(
    asked: float | None, tries: int, least: float, most: float
) -> None:
    error = TransientModelError("later", retry_after=asked)
    assert least <= RetryPolicy().backoff_seconds(error, tries) <= most
