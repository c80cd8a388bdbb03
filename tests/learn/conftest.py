"""A tiny model, a judged run of its, and what trains on them quickly."""

from __future__ import annotations

from tests.helpers.training import model, run, trained

__all__ = ["model", "run", "trained"]
