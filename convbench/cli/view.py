"""`convbench view`."""

from __future__ import annotations

import sys
from contextlib import closing

from convbench.cli.answers.looks import ViewAnswer
from convbench.cli.command import command
from convbench.cli.console import err
from convbench.cli.envelope import give
from convbench.options.look import ViewOptions


@command("view", ViewOptions, ViewAnswer)
def view(options: ViewOptions) -> None:
    """Serve the viewer, or write it as files."""
    from rich.markup import escape

    from convbench.cli.say import fact, next_command, path_of, shown
    from convbench.commands import view as commands
    from convbench.view import Library

    def say(text: str) -> None:
        err.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    if options.static is not None:
        with closing(commands.index_runs(options.runs, say)) as index:
            files, total = commands.view_static(index, options.static, say), index.total
        place = shown(options.static)
        give(ViewAnswer(address=None, folder=path_of(options.static), conversations=total))
        fact("site", f"{place}: {total} conversations in {files} files")
        next_command(f"python -m http.server --bind 127.0.0.1 --directory {place}")
        return

    found = commands.shown(options.runs, say)

    def ready(address: str) -> None:
        total = None
        if not isinstance(found, Library) and found.partial is None:
            total = found.index.total
        give(ViewAnswer(address=address, folder=None, conversations=total))
        fact("view", address)
        sys.stdout.flush()
        err.print("[dim]the address holds a key: keep it to yourself. Ctrl-C ends it[/]")

    commands.view(found, options.port, ready, browser=options.open)
