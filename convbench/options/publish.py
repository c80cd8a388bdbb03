"""Options of `publish`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import RunDir

Repo = Annotated[str, Opt("OWNER/NAME on the Hub.", metavar="REPO_ID", argument=True)]


@dataclass(frozen=True)
class PublishOptions:
    """Publish a run as a dataset (parquet, card, all that `pull` needs), or a checkpoint as a
    model with its card."""

    EXAMPLES: ClassVar = (
        "convbench publish me/arc-thinking --dry-run",
        "convbench publish me/arc-thinking --private",
        "convbench publish me/arc-swift --checkpoint runs/latest/checkpoints/swift",
    )

    repo: Repo
    run: RunDir = None
    checkpoint: Annotated[
        Path | None, Opt("Publish this checkpoint as a model, not the run.", metavar="DIR")
    ] = None
    judge: Annotated[
        str | None,
        Opt("Judge whose reward stands beside messages and results, where there are several."),
    ] = None
    private: Annotated[
        bool | None,
        Opt(
            "Whether a new repository is for you alone. Without either it is public; on a "
            "terminal you are asked first.",
            "--private/--public",
        ),
    ] = None
    dry_run: Annotated[bool, Opt("Write the folder that would be sent; send nothing.")] = False
    folder: Annotated[
        Path | None,
        Opt("Where --dry-run writes; without it RUN/publish (DIR/publish).", metavar="DIR"),
    ] = None
    leave_out_leaks: Annotated[
        bool,
        Opt(
            "Leave out conversations whose messages hold hidden text; without it nothing is "
            "published where there are any."
        ),
    ] = False
