"""A model provider in a process of its own, shared by a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.cli import post
from tests.support.serve import spawn


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """URL of the provider; its control pages lie there, the API below `/v1`."""
    with spawn("provider") as url:
        yield url


@pytest.fixture
def provider(served: str) -> str:
    """The provider with nothing counted and no fault planned."""
    post(served, "/_config", {"latency_s": 0.0, "schedule": {}, "keep_requests": 0})
    post(served, "/_reset")
    return served
