"""The model provider of the build tests."""

from __future__ import annotations

from tests.rollout.conftest import provider, served

__all__ = ["provider", "served"]
