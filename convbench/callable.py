"""Rooms that bear a verb's name can be called: `convbench.judge` is the room, and
`convbench.judge(run, "rules")` the verb of the Python API."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class Room(ModuleType):
    """A module that is called as the verb of its name."""

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
