"""The command line: what is typed and what is printed.

May use every room; nothing uses it.
"""

from convbench.cli import (  # noqa: F401 - each adds its commands to the app
    batches,
    build,
    credit,
    data,
    demo,
    estimate,
    evaluate,
    experiment,
    gold,
    judge,
    listing,
    look,
    report,
    train,
    view,
    work,
)
from convbench.cli.main import app, main

__all__ = ["app", "main"]
