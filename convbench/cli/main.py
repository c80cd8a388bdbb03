"""The command line: thin commands over `convbench.commands`, one line for a user's mistake."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from convbench import __version__
from convbench.blot import keys
from convbench.cli.console import err
from convbench.cli.loading import loading
from convbench.cli.narrow import fold
from convbench.errors import ConvbenchError

PANELS = {
    "First": {
        "demo": "demo", "doctor": "look", "init": "look", "list": "listing", "show": "look",
        "models": "look",
    },
    "Steps of a run": {
        "build": "build", "judge": "judge", "train": "train", "eval": "evaluate",
        "report": "report", "experiment": "experiment",
    },
    "Looking closer": {
        "view": "view", "query": "data", "patterns": "report", "gold": "gold",
        "estimate": "estimate", "credit": "credit", "verify": "look",
    },
    "In and out": {"import": "data", "export": "data", "publish": "data", "pull": "data"},
    "Runs": {
        "tag": "look", "status": "batches", "cancel": "batches", "merge": "batches",
    },
}  # fmt: skip
"""The commands in the order in which `--help` shows them, by panel, and the file of each."""


def load(typed: Sequence[str] = ()) -> None:
    """Register the command that these words begin with; all commands where they name none, but to
    say the version."""
    if typed and typed[0] == "--version":
        return
    files = {word: file for words in PANELS.values() for word, file in words.items()}
    word = next((one for one in typed if not one.startswith("-")), "")
    for file in [files[word]] if word in files else dict.fromkeys(files.values()):
        import_module(f"convbench.cli.{file}")


RARELY = (100_000, 1, 1)
"""Objects that are made between two looks for cycles among the youngest, and such looks between two
at older ones. Python's 700 took a sixth of the CPU of a command that makes calls, and 20,000 still
a tenth with 1,024 of them in flight, which are no garbage; nearly all goes without such a look."""


class Ordered(TyperGroup):
    """All commands, in the order of their panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names."""
        order = [name for names in PANELS.values() for name in names]
        return sorted(self.commands, key=order.index)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what stands before the command."""
        with self._answering(args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words begin with."""
        with self._answering(args):
            return super().resolve_command(ctx, args)

    @staticmethod
    def _answering(args: list[str]) -> AbstractContextManager[None]:
        if "--json" not in args:  # what answers is read in only where it is asked for
            return nullcontext()
        from convbench.cli.envelope import answering_mistakes

        return answering_mistakes(next((one for one in args if one[:1] != "-"), ""), args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; nothing of it is cut."""
        fold()
        super().format_help(ctx, formatter)


def panel_of(name: str) -> str:
    """Return the panel that shows a command."""
    return next(panel for panel, names in PANELS.items() if name in names)


app = typer.Typer(
    name="convbench",
    cls=Ordered,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One declarative spec takes a question set through build, judge, train, eval, report "
    "and publish.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"convbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
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


def main() -> None:
    """Run the command line; exit code 0 only on success."""
    gc.set_threshold(*RARELY)
    # else the first model that is made looks through every installed package for plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = sys.argv[1:]
    verbose = "--verbose" in arguments or bool(os.environ.get("CONVBENCH_VERBOSE"))
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument not in ("--verbose", "--debug")]
    try:
        _run(arguments, debug)
    except ConvbenchError as error:
        if verbose:
            err.print(keys(traceback.format_exc()), markup=False, end="")
        from convbench.cli.envelope import notes_of
        from convbench.cli.say import told

        told(err, "error: ", "red", " ".join(keys(str(error)).split()))
        for line in notes_of(error):
            told(err, "       ", "red", line)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _interrupted()
    except BrokenPipeError:
        _unread()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer's own way to end then
            _unread()
        raise


def _run(arguments: list[str], debug: bool) -> None:
    from convbench.cli.defaults import default_map, given

    with loading():
        load(() if given() else arguments)  # such a file may name any command
        # what is loaded stays: no later look for cycles goes over it again, nor do the four that
        # Python takes as it ends, which were a sixth of a short command's CPU
        gc.freeze()
    if not debug:
        app(args=arguments, default_map=default_map())
        return
    from convbench.cli.debug import debugging

    with debugging(arguments) as path:
        err.print(f"debug log: {path}", markup=False)
        app(args=arguments, default_map=default_map())


def _unread() -> NoReturn:
    """End as a program does whose reader has gone: nothing more can be said to it."""
    sys.stdout = None
    sys.exit(141)


def _interrupted() -> NoReturn:
    err.print("interrupted")
    sys.exit(130)
