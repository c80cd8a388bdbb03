"""`convbench merge`: join runs of the same specs in a new run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, quoted
from convbench.errors import UsageError
from convbench.options.declare import Opt


@dataclass(frozen=True)
class MergeOptions:
    """Join runs of the same specs, such as those of `build --shard I/N`, in a new run."""

    EXAMPLES: ClassVar = ("convbench merge runs/arc-0 runs/arc-1 --run runs/arc",)

    runs: Annotated[
        tuple[Path, ...],
        Opt("Runs to join.", metavar="RUN", argument=True, names="runs"),
    ] = ()
    run: Annotated[Path | None, Opt("Folder of the new run.", metavar="DIR")] = None


class MergeAnswer(Answer):
    """`merge`: the run that was made."""

    run: str
    """Its folder."""
    runs: int
    """Number of runs that were joined."""
    questions: int
    """Questions that it has now."""
    conversations: int
    """Conversations that it has now."""


def run(options: MergeOptions, context: RunContext) -> MergeAnswer:
    """Join the runs and return what the new run holds.

    Raises UsageError without runs or `--run`, RunError if their specs differ.
    """
    from convbench.store import find_run
    from convbench.store.merge import merge_runs

    if not options.runs or options.run is None:
        raise UsageError("merge needs runs to join and --run DIR of a new one")
    merged = merge_runs([find_run(path) for path in options.runs], options.run)
    context.add_next(f"convbench report {quoted(path_text(merged.path))}")
    return MergeAnswer(
        run=path_text(merged.path),
        runs=len(options.runs),
        questions=len(merged.questions),
        conversations=sum(1 for _ in merged.conversations()),
    )


def show(answer: MergeAnswer) -> None:
    """Print what was joined."""
    print_fact("run", quoted(answer.run))
    print_fact(
        "joined",
        f"{answer.runs} runs: {answer.questions} questions, {answer.conversations} conversations",
    )


merge_command = Command(run, show)
