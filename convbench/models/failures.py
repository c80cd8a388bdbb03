"""Kinds of failed attempts that the engine treats in their own way."""

from __future__ import annotations

from convbench.errors import TransientModelError


class BrokenReply(TransientModelError):
    """A request was sent and gave nothing usable: cut JSON, empty content, a timeout, a reset.

    The provider may bill it, also where it told no `usage`.
    """


class Unreachable(TransientModelError):
    """No connection could be made: nobody listens, no such host. Nothing was sent."""


class ToolError(Exception):
    """What a tool tells the model went wrong."""
