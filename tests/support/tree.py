"""The tree of commands is built once a process: typer builds it anew for every command typed, which
is most of what a short one takes."""

from functools import cache

import typer.main
import typer.testing


def keep_tree() -> None:
    """Build each tree once from here on."""
    typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)
