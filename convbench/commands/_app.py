"""The command line program. A user's mistake is one line; only the command typed is loaded."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from convbench import __version__
from convbench.commands._help import fold_tables
from convbench.commands._words import ENTRIES, PANELS
from convbench.errors import ConvbenchError
from convbench.util.redact import redact_text
from convbench.util.terminal import Terminal


def register_commands(typed: Sequence[str] | None = None) -> None:
    """Register the command that the first of these words names, if any; for None all commands."""
    words = ENTRIES if typed is None else [word for word in typed if not word.startswith("-")][:1]
    missing = [word for word in words if word in ENTRIES and word not in _registered]
    if not missing:
        return
    from convbench.commands._typer import register_command

    for word in missing:
        register_command(app, word, _panel_of(word))
        _registered.add(word)


_registered: set[str] = set()
"""Names of the commands registered so far."""


def _panel_of(word: str) -> str:
    """Return the panel of `--help` that shows a command."""
    return next(panel for panel, entries in PANELS.items() if word in entries)


COMPLETING = "_CONVBENCH_COMPLETE"
"""Environment variable that a shell sets to complete a word."""

RARELY = (100_000, 1, 1)
"""Thresholds of the garbage collector. Python's 700 took a sixth of the CPU of a command that makes
calls, and 20,000 still a tenth with 1,024 calls in flight, which are no garbage; reference counts
free nearly everything without it."""


class OrderedGroup(TyperGroup):
    """All commands in the order of their panels. Those not loaded have only the first paragraph of
    their help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, words in PANELS.items():
            for word, entry in words.items():
                stub = TyperCommand(word, help=entry.help, rich_help_panel=panel)
                self.commands.setdefault(word, stub)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of their panels."""
        return sorted(self.commands, key=list(ENTRIES).index)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command, store the rest for it, and return what is left of
        the words."""
        with self._answer_mistakes(args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return (name, command, remaining words) for the command that the first word names.

        Raises click's UsageError for an unknown one; with `--json` it is printed as a document
        first.
        """
        with self._answer_mistakes(args):
            return super().resolve_command(ctx, args)

    @staticmethod
    def _answer_mistakes(args: list[str]) -> AbstractContextManager[None]:
        if "--json" not in args:  # its module is loaded only if needed
            return nullcontext()
        from convbench.commands._json import answering_mistakes

        return answering_mistakes(
            next((argument for argument in args if argument[:1] != "-"), ""), args
        )

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without cutting any of it."""
        fold_tables()
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="convbench",
    cls=OrderedGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One declarative spec takes a question set through build, judge, train, eval, report "
    "and publish.",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"convbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the traceback of an error; goes anywhere.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Write what happens, call by call, to a file; goes anywhere."),
    ] = False,
) -> None:
    """One declarative spec from question set to published dataset."""


err = Terminal(stderr=True, highlight=False)


def main() -> None:
    """Run the command line and exit, with code 0 only on success."""
    gc.set_threshold(*RARELY)
    # or the first pydantic model would search every installed package for plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = sys.argv[1:]
    verbose = "--verbose" in arguments or bool(os.environ.get("CONVBENCH_VERBOSE"))
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument not in ("--verbose", "--debug")]
    try:
        _run_command(arguments, debug)
    except ConvbenchError as error:
        if verbose:
            err.print(redact_text(traceback.format_exc()), markup=False, end="")
        from convbench.commands._json import notes_of
        from convbench.commands._output import print_line

        print_line(err, "error: ", "red", " ".join(redact_text(str(error)).split()))
        for line in notes_of(error):
            print_line(err, "       ", "red", line)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _exit_interrupted()
    except BrokenPipeError:
        _exit_unread()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer's own way to end then
            _exit_unread()
        raise


def _run_command(arguments: list[str], debug: bool) -> None:
    from convbench.commands._config import default_map, has_file

    gc.disable()  # what is loaded is no garbage
    # a file of defaults may name any command, and so may what is completed
    register_commands(None if has_file() or COMPLETING in os.environ else arguments)
    # loaded modules stay, so no later collection needs to scan them; the four at Python's exit
    # were a sixth of a short command's CPU
    gc.freeze()
    gc.enable()
    if not debug:
        app(args=arguments, default_map=default_map())
        return
    from convbench.commands._debug import debug_log

    with debug_log(arguments) as path:
        err.print(f"debug log: {path}", markup=False)
        app(args=arguments, default_map=default_map())


def _exit_unread() -> NoReturn:
    """Exit as a program does after SIGPIPE: nobody reads its output any more."""
    sys.stdout = None
    sys.exit(141)


def _exit_interrupted() -> NoReturn:
    err.print("interrupted")
    sys.exit(130)
