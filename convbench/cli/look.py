"""`convbench list`, `show`, `doctor`: what there is and what is missing."""

from __future__ import annotations

from convbench.cli.command import command
from convbench.options.look import DoctorOptions, ListOptions, ModelsOptions, ShowOptions


@command("list", ListOptions)
def list_(options: ListOptions) -> None:
    """List specs, models, runs."""
    from convbench.cli.say_look import say_list
    from convbench.commands.listing import listing

    say_list(listing(options.what, options.specs))


@command("show", ShowOptions)
def show(options: ShowOptions) -> None:
    """Show a task or a conversation."""
    from convbench.cli.say_look import say_conversation, say_task
    from convbench.commands.show import show_conversation, show_task

    found = show_conversation(options.name, options.runs, options.specs.folders)
    if found is not None:
        say_conversation(found)
        return
    say_task(show_task(options.name, options.protocol, options.mode, options.turns, options.specs))


@command("models", ModelsOptions)
def models(options: ModelsOptions) -> None:
    """Fetch a model."""
    from convbench.cli.console import err
    from convbench.cli.say import fact, next_command, shown
    from convbench.commands.models import models

    found = models(options, lambda text: err.print(text, markup=False))
    fact("model", f"local:{options.name}: {found.note}")
    fact("from", found.source)
    fact("in", shown(found.folder))
    next_command(f"convbench build arc-easy --model local:{options.name} --tasks 20 --dry-run")


@command("doctor", DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Examine this machine."""
    import typer

    from convbench.cli.say_look import say_doctor
    from convbench.commands.doctor import examine

    if not say_doctor(examine()):
        raise typer.Exit(1)
