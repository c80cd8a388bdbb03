"""Errors of failed attempts that the engine treats differently from others."""

from __future__ import annotations

from convbench.errors import TransientModelError


class BrokenReply(TransientModelError):
    """A request was sent and gave nothing usable: cut JSON, empty content, a timeout, a reset.

    The provider may bill it, even if it reported no `usage`.
    """


class Unreachable(TransientModelError):
    """No connection could be made: no listener, or no such host. Nothing was sent."""


class ToolError(Exception):
    """A tool failed; the message is what the model is told."""
