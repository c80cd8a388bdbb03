"""`convbench view`: serve the conversation browser, or write it as files."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import err, path_text, print_fact, quoted
from convbench.options.declare import Opt


@dataclass(frozen=True)
class ViewOptions:
    """Browse conversations: filter, read, compare, score. A local page of one or many runs, live
    while they grow."""

    EXAMPLES: ClassVar = (
        "convbench view                      (the runs in runs/, to choose from)",
        "convbench view runs/latest",
        "convbench view runs/arc-a runs/arc-b --port 9000 --no-open",
        "convbench view --static site        (then any web server on that folder)",
    )

    runs: Annotated[
        tuple[Path, ...],
        Opt(
            "Run directories, or a folder of runs to choose from; without any the folder runs.",
            metavar="RUN",
            argument=True,
            names="runs",
            either=True,
        ),
    ] = ()
    static: Annotated[
        Path | None,
        Opt("Write the same pages as files, without scoring and SQL conditions.", metavar="DIR"),
    ] = None
    port: Annotated[int | None, Opt("Port on 127.0.0.1; without it 8642.", least=0, most=65535)] = (
        None
    )
    open: Annotated[bool, Opt("Open the page in the browser.", "--open/--no-open")] = True


class ViewAnswer(Answer):
    """`view`: the folder of written pages, or the address of served ones."""

    address: str | None
    """Address of served pages."""
    folder: str | None
    """Folder of written pages."""
    conversations: int | None
    """Number of conversations; null if runs are chosen in the page."""


def run(options: ViewOptions, context: RunContext) -> ViewAnswer:
    """Write the pages as files, or serve them until interrupted; return the folder or the address.

    `conversations` is None if runs are chosen in the page or are still being read.
    """
    from rich.markup import escape

    from convbench.viewer import Library, serve, write_site
    from convbench.viewer.library import index_runs, library_or_index

    def print_step(text: str) -> None:
        err.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    if options.static is not None:
        with closing(index_runs(options.runs, print_step)) as index:
            files, total = write_site(index, options.static, print_step), index.total
        folder = path_text(options.static)
        context.add_next(f"python -m http.server --bind 127.0.0.1 --directory {quoted(folder)}")
        return ViewAnswer(address=None, folder=folder, conversations=total).with_source(files)

    runs = library_or_index(options.runs, print_step)
    answer = ViewAnswer(address=None, folder=None, conversations=None)

    def show_address(address: str) -> None:
        nonlocal answer
        total = None
        if not isinstance(runs, Library) and runs.partial is None:
            total = runs.index.total
        context.answer = answer = ViewAnswer(address=address, folder=None, conversations=total)
        context.show_part(answer)
        err.print("[dim]the address contains a key: do not share it. Press Ctrl-C to stop[/]")

    serve(runs, options.port, show_address, browser=options.open)
    return answer


def show(answer: ViewAnswer) -> None:
    """Print the address or the folder of the pages."""
    if answer.address is not None:
        print_fact("view", answer.address)
        sys.stdout.flush()
    elif answer.folder is not None:
        pages = f"{answer.conversations} conversations in {answer._source} files"
        print_fact("site", f"{quoted(answer.folder)}: {pages}")


view_command = Command(run, show)
