"""The commands, each with its panel and the first paragraph of its help. A command's module is
loaded only when it is typed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from convbench.commands._command import Command


class CommandEntry(NamedTuple):
    """A command that is not loaded yet."""

    file: str
    """Name of its module in `convbench.commands`."""
    help: str
    """The first paragraph of its help."""


PANELS = {
    "First": {
        "demo": CommandEntry(
            "demo", "Watch a tiny policy learn on this machine: build, judge, train, eval, report."
        ),
        "doctor": CommandEntry(
            "doctor", "Show what is installed, reachable and missing, with the fix for each."
        ),
        "init": CommandEntry(
            "init",
            "Write a commented spec of your own that runs as it is, to be changed from there.",
        ),
        "list": CommandEntry(
            "list_", "List specs by kind, models by alias, and the runs in this folder."
        ),
        "show": CommandEntry(
            "show",
            "Show one spec, with its prompts rendered on a sample where it has any, or one "
            "conversation.",
        ),
    },
    "Steps of a run": {
        "build": CommandEntry(
            "build",
            "Build a run: draw questions and hold a conversation of several turns about each.",
        ),
        "judge": CommandEntry(
            "judge",
            "Score every conversation of a run and of its evaluations; existing scores are kept.",
        ),
        "train": CommandEntry("train", "Train a policy on the judged conversations of a run."),
        "eval": CommandEntry(
            "eval_",
            "Evaluate a policy on a run's test questions, with the same teacher and judges.",
        ),
        "report": CommandEntry(
            "report",
            "Compare policies with their own bases: means with errors, paired differences, counts.",
        ),
        "experiment": CommandEntry(
            "experiment", "Run a whole table from one file; the same command resumes it."
        ),
    },
    "Looking closer": {
        "view": CommandEntry(
            "view",
            "Browse conversations: filter, read, compare, score. A local page of one or many "
            "runs, live while they grow.",
        ),
        "query": CommandEntry("query", "Ask a run, or several, in SQL (DuckDB, read-only)."),
        "gold": CommandEntry(
            "gold",
            "Have people label a sample, drawn with known probabilities, to correct a judge.",
        ),
    },
    "In and out": {
        "import": CommandEntry(
            "import_", "Make a run of conversations and rewards that were logged elsewhere."
        ),
        "export": CommandEntry(
            "export", "Write a run in another trainer's format, one file per split."
        ),
        "publish": CommandEntry(
            "publish",
            "Publish a run as a dataset (parquet, card, all that `pull` needs), a checkpoint as a"
            " model with its card, or all runs of an experiment with a collection of them.",
        ),
        "pull": CommandEntry("pull", "Restore a published run, which every command then accepts."),
    },
    "Runs": {
        "status": CommandEntry(
            "batches",
            "Show a run's batches (waves, ages, counts). The provider is asked about batches under "
            "way.",
        ),
        "cancel": CommandEntry(
            "batches",
            "End a run's batches at the provider; the next resume keeps what was answered by then.",
        ),
        "merge": CommandEntry(
            "merge",
            "Join runs of the same specs, such as those of `build --shard I/N`, in a new run.",
        ),
    },
}
"""The commands by panel, in the order of `--help`."""

ENTRIES = {word: entry for words in PANELS.values() for word, entry in words.items()}
"""The commands by their word."""


def load_command(word: str) -> Command[Any, Any]:
    """Return the command of a word, loading its module.

    Raises KeyError for a word that is no command.
    """
    module = import_module(f"convbench.commands.{ENTRIES[word].file}")
    command: Command[Any, Any] = getattr(module, f"{word}_command")
    return command
