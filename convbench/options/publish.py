"""Options of `publish`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import RunDir

REPO = Opt("OWNER/NAME on the Hub.", metavar="REPO_ID", argument=True)
Repo = Annotated[str, REPO]


@dataclass(frozen=True)
class PublishOptions:
    """Publish a run as a dataset (parquet, card, all that `pull` needs), a checkpoint as a model
    with its card, or all runs of an experiment with a collection of them."""

    EXAMPLES: ClassVar = (
        "convbench publish me/arc-thinking --dry-run",
        "convbench publish me/arc-thinking --private",
        "convbench publish me/arc-swift --checkpoint runs/latest/checkpoints/swift",
        "convbench publish --experiment runs/experiments/paper --prefix me/ --dry-run",
    )

    repo: Annotated[str | None, REPO] = None
    run: RunDir = None
    checkpoint: Annotated[
        Path | None, Opt("Publish this checkpoint as a model, not the run.", metavar="DIR")
    ] = None
    experiment: Annotated[
        Path | None,
        Opt(
            "Publish every run of this experiment that has a licence, named by task and mode.",
            metavar="DIR",
        ),
    ] = None
    prefix: Annotated[
        str | None,
        Opt(
            "With --experiment: OWNER/ on the Hub, and how the names begin if not with the task.",
            metavar="OWNER/",
        ),
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
