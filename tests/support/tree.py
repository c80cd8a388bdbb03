"""The tree of commands is built once for as many commands as are there: typer builds it anew for
every command typed, which is most of what a short one takes."""

from functools import cache
from typing import Any

import typer.main
import typer.testing


def keep_tree() -> None:
    """Build no tree twice from here on."""
    build = typer.main.get_command

    @cache
    def built(app: typer.Typer, commands: int) -> Any:
        return build(app)

    def get_command(app: typer.Typer) -> Any:
        return built(app, count(app))

    typer.main.get_command = typer.testing._get_command = get_command


def count(app: typer.Typer) -> int:
    """Return how many commands and groups are registered by now, whatever the depth."""
    groups = [group.typer_instance for group in app.registered_groups if group.typer_instance]
    return len(app.registered_commands) + sum(1 + count(group) for group in groups)
