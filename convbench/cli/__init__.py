"""The command line: what is typed and what is printed.

May use every room; nothing uses it.
"""

from convbench.cli import build, data, demo, evaluate, judge, look, report, train, view  # noqa: F401 - each adds its commands to the app
from convbench.cli.main import app, main

__all__ = ["app", "main"]
