"""Options of `query`, `publish`, `pull`, `import` and `export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.errors import UsageError
from convbench.options.declare import DAY_S, Opt
from convbench.options.shared import MOST_EACH, SEEDS, RunDir, RunDirs, RunNote, SpecOptions, Tags

Repo = Annotated[str, Opt("OWNER/NAME on the Hub.", metavar="REPO_ID", argument=True)]
Into = Annotated[Path | None, Opt("Where the run goes; without it into runs/.", metavar="DIR")]


@dataclass(frozen=True)
class QueryOptions:
    """Ask a run, or several, in SQL (DuckDB, read-only)."""

    EXAMPLES: ClassVar = (
        'convbench query "select temperature, avg(correct::int) from conversations group by 1"',
        'convbench query "select * from verdicts where overall < 3" --format csv',
        'convbench query "describe conversations"',
    )

    sql: Annotated[
        str,
        Opt("One SELECT; tables: examples, conversations, turns, verdicts, runs.", argument=True),
    ]
    runs: RunDirs = ()
    format: Annotated[
        Literal["table", "json", "csv", "parquet"],
        Opt("How the result is written.", typed_only=True),
    ] = "table"
    out: Annotated[Path | None, Opt("File to write it to.", metavar="FILE", typed_only=True)] = None
    timeout: Annotated[
        float,
        Opt(
            "Seconds after which the query is given up.", "--timeout", "SECONDS", least=0.1,
            most=DAY_S, typed_only=True,
        ),
    ] = 30.0  # fmt: skip


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


@dataclass(frozen=True)
class PullOptions:
    """Restore a published run, which every command then accepts."""

    EXAMPLES: ClassVar = ("convbench pull me/arc-thinking",)

    repo: Repo
    run: Into = None
    revision: Annotated[str | None, Opt("Branch, tag or commit; without it main.")] = None


@dataclass(frozen=True)
class ImportOptions:
    """Make a run of conversations and rewards that were logged elsewhere."""

    EXAMPLES: ClassVar = (
        "convbench import logs.jsonl     then: convbench train swift",
        "convbench import pairs.parquet",
        "convbench import hf://me/chats --map reward=score --map messages=dialogue",
    )

    file: Annotated[
        str,
        Opt(
            "JSON lines, JSON, CSV, parquet, an Inspect log (.eval), or hf://OWNER/NAME: "
            "messages and reward, or TRL's prompt, completion, chosen, rejected; optional group, "
            "temperature, split.",
            argument=True,
        ),
    ]
    run: Into = None
    map: Annotated[
        tuple[str, ...],
        Opt(
            "Field of the rows to read as NAME, e.g. reward=scores.overall; repeat it for "
            "several.",
            metavar="NAME=FIELD",
        ),
    ] = ()  # fmt: skip
    tags: Tags = ()
    note: RunNote = None

    @property
    def names(self) -> dict[str, str]:
        """Names known here, by those of the rows; SpecError for what is no NAME=FIELD."""
        found: dict[str, str] = {}
        for said in self.map:
            ours, sign, theirs = (part.strip() for part in said.partition("="))
            if not (ours and sign and theirs) or ours in found:
                raise UsageError(
                    f"--map {said!r}: expected NAME=FIELD, each NAME once, e.g. reward=score"
                )
            found[ours] = theirs
        return found


@dataclass(frozen=True)
class ExportOptions:
    """Write a run in another trainer's format, one file per split."""

    EXAMPLES: ClassVar = (
        "convbench export --to trl --recipe swift",
        "convbench export --to openai --recipe refit --scale 3",
        "convbench export --to trl --recipe dpo",
    )

    to: Annotated[Literal["trl", "openai", "sharegpt", "ms-swift"], Opt("The format.")]
    run: RunDir = None
    recipe: Annotated[
        str | None,
        Opt("Weigh or pair the train split as this recipe does: a name or a file, as for `train`."),
    ] = None
    scale: Annotated[
        float | None,
        Opt(
            "Repeat whole conversations floor or ceil of scale * weight times.",
            least=1e-6,
            most=MOST_EACH,
        ),
    ] = None
    judge: Annotated[str | None, Opt("Judge whose reward weighs, where there are several.")] = None
    seed: Annotated[int, Opt("Seed of the rounding.", least=SEEDS[0], most=SEEDS[1])] = 0
    flagged: Annotated[
        Literal["drop", "keep", "zero"] | None,
        Opt(
            "What becomes of the train split's conversations that a fidelity check flagged "
            "(the recipe's choice, or drop); zero, with --recipe: their reward is 0."
        ),
    ] = None
    out: Annotated[
        Path | None,
        Opt("Folder; without it RUN/export/FORMAT, and RECIPE in it.", metavar="DIR"),
    ] = None
    specs: SpecOptions = SpecOptions()
