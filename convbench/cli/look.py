"""`convbench list`, `show`, `doctor`: what there is and what is missing."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from convbench.cli.main import app
from convbench.cli.options import Plugin, RunDirs, Set, Specs

What = Literal["tasks", "protocols", "judges", "models", "recipes", "experiments", "launch", "runs"]


@app.command(
    "list",
    epilog="Examples:\n\n  convbench list tasks\n\n  convbench list runs",
)
def list_(
    what: Annotated[What | None, typer.Argument(help="Which kind; without it all specs.")] = None,
    specs: Specs = None,
) -> None:
    """Show what there is: specs by kind, models by alias, runs here."""
    from convbench.cli.say_look import say_list
    from convbench.commands.look import listing

    say_list(listing(what, tuple(specs or ())))


@app.command(
    epilog="Examples:\n\n  convbench show arc --mode thinking\n\n  convbench show 3f9a0c12",
)
def show(
    name: Annotated[str, typer.Argument(help="A task, or (the start of) a conversation_id.")],
    mode: Annotated[
        Literal["thinking", "standard"] | None, typer.Option(help="Mode of the prompts.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Protocol; without it the task's own.")
    ] = None,
    turns: Annotated[int | None, typer.Option(help="Policy turns.")] = None,
    run: RunDirs = None,
    specs: Specs = None,
    set_: Set = None,
    plugin: Plugin = None,
) -> None:
    """Show one task with its prompts rendered on a sample, or one conversation."""
    from convbench.catalog.options import SpecOptions
    from convbench.cli.say_look import say_conversation, say_task
    from convbench.commands.look import show_conversation, show_task

    options = SpecOptions(tuple(specs or ()), tuple(set_ or ()), tuple(plugin or ()))
    found = show_conversation(name, run, options.folders)
    if found is not None:
        say_conversation(found)
    else:
        say_task(show_task(name, protocol, mode, turns, options))


@app.command(epilog="Example:\n\n  convbench doctor")
def doctor() -> None:
    """Show what is installed, reachable and missing, with the fix for each."""
    from convbench.cli.say_look import say_doctor
    from convbench.commands.doctor import examine

    if not say_doctor(examine()):
        raise typer.Exit(1)
