"""The command line: what is typed and what is printed.

May use every room; nothing uses it. A command's file is loaded when it is typed, for one takes as
long to start as what it imports; who takes `app` gets all of them.
"""

from typing import Any

from convbench.cli.loading import loading

with loading():
    from convbench.cli.main import load, main

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from convbench.cli.main import app

    load()
    return app
