"""The command line with all its commands loaded."""

from convbench.commands._app import app, load

load()

__all__ = ["app"]
