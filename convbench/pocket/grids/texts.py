"""Every wording that the tiny policy of the grids knows."""

from __future__ import annotations

from typing import Final

ASK: Final = "Write a self-edit."


def asked(shown: str) -> str:
    """The prompt of a self-edit (`overrides` of specs/tasks/pocket-grids.yaml)."""
    return f"{shown}\n------\n{ASK}"
