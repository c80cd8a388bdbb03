"""Make packages callable: `convbench.judge` is a package, and `convbench.judge(run, "rules")` calls
the function of that name in the Python API."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def _verb_doc(room: ModuleType) -> str | None:
    """Return the docstring of the function, for `help(convbench.judge)`."""
    doc: str | None = find_verb(room.__name__).__doc__
    return doc


class CallableModule(ModuleType):
    # A module that calls the API function of its name and has its docstring.
    __doc__ = property(_verb_doc)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the API function of this name."""
        return find_verb(self.__name__)(*args, **keywords)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(find_verb(self.__name__))


def find_verb(room: str) -> Any:
    """Return the API function with the last name of a dotted module name."""
    return getattr(import_module("convbench.api.verbs"), room.rpartition(".")[2])


def make_callable(room: str) -> None:
    """Make an imported module callable, in place: a call of it calls the API function with the last
    part of its name."""
    sys.modules[room].__class__ = CallableModule
