"""Rooms that bear a verb's name can be called: `convbench.judge` is the room, and
`convbench.judge(run, "rules")` the verb of the Python API."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def _about(room: ModuleType) -> str | None:
    """Return what the verb does and takes: `help(convbench.judge)` asks for it."""
    found: str | None = verb(room.__name__).__doc__
    return found


class Room(ModuleType):
    # A module that is called as the verb of its name; its docstring is the verb's.
    __doc__ = property(_about)

    def __call__(self, *args: Any, **said: Any) -> Any:
        """Do what the verb does."""
        return verb(self.__name__)(*args, **said)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(verb(self.__name__))


def verb(room: str) -> Any:
    """Return the verb of a room's name, from the API above all rooms."""
    return getattr(import_module("convbench.api.verbs"), room.rpartition(".")[2])


def make_callable(room: str) -> None:
    """Let a room be called."""
    sys.modules[room].__class__ = Room
