"""The command line with all its commands loaded."""

from convbench.commands._app import app, register_commands

register_commands()

__all__ = ["app"]
