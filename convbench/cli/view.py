"""`convbench view`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from convbench.cli.console import err
from convbench.cli.main import app

Runs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RUN]…", help="Run directories; without any the newest run."),
]


@app.command(
    epilog="Examples:\n\n"
    "  convbench view\n\n"
    "  convbench view runs/arc-a runs/arc-b --port 9000 --no-open\n\n"
    "  convbench view --static site        (then any web server on that folder)"
)
def view(
    runs: Runs = None,
    static: Annotated[
        Path | None,
        typer.Option(
            "--static",
            metavar="DIR",
            help="Write the same pages as files, without scoring and free SQL.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; without it 8642."),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Browse conversations: filter, read, compare, score. A local page of one or many runs."""
    from rich.markup import escape

    from convbench.cli.say import fact, next_command, shown
    from convbench.commands.view import index_runs, view_static
    from convbench.commands.view import view as command

    def say(text: str) -> None:
        err.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    index = index_runs(tuple(runs or ()), say)
    if static is not None:
        files = view_static(index, static, say)
        fact("site", f"{shown(static)}: {index.total} conversations in {files} files")
        next_command(f"python -m http.server --bind 127.0.0.1 --directory {shown(static)}")
        return

    def ready(address: str) -> None:
        fact("view", address)
        sys.stdout.flush()
        err.print("[dim]the address holds a key: keep it to yourself. Ctrl-C ends it[/]")

    command(index, port, ready, browser=open_)
