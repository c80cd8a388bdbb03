"""`convbench import`: make a run of conversations and rewards that were logged elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from convbench.commands._command import Command, RunAnswer, RunContext
from convbench.commands._output import COUNT, path_text, print_fact, quoted, run_option
from convbench.errors import UsageError
from convbench.options.declare import Opt
from convbench.options.shared import NewRun

if TYPE_CHECKING:
    from convbench.formats.reading import ImportPlan


@dataclass(frozen=True)
class ImportOptions:
    """Make a run of conversations and rewards that were logged elsewhere."""

    EXAMPLES: ClassVar = (
        "convbench import logs.jsonl --dry-run",
        "convbench import ~/.claude/projects --split-by time",
        "convbench import hf://me/chats --map reward=score --map messages=dialogue",
    )

    file: Annotated[
        str,
        Opt(
            "A file, folder or pattern of a chat set's rows or an agent's logs (JSON lines, JSON, "
            "CSV, parquet, .eval, also .gz and .zst), or hf://OWNER/NAME:CONFIG/SPLIT.",
            argument=True,
        ),
    ]
    run: NewRun = None
    format: Annotated[
        str | None, Opt("Format of the logs; without it, it is told by their content.")
    ] = None
    map: Annotated[
        tuple[str, ...],
        Opt(
            "Field of the rows to read as NAME, e.g. reward=scores.overall; repeat it for several.",
            metavar="NAME=FIELD",
        ),
    ] = ()
    policy: Annotated[
        str | None,
        Opt("Who is learnt, where several spoke: a name, a role or a model.", metavar="NAME"),
    ] = None
    rewards: Annotated[
        str | None, Opt("File of rewards by the id that --key names.", metavar="FILE")
    ] = None
    key: Annotated[
        str | None, Opt("Column of the id by which --rewards are matched.", metavar="NAME")
    ] = None
    split_by: Annotated[
        Literal["time", "group"] | None,
        Opt("Put a fifth of the groups into test: the latest, or by chance."),
    ] = None
    fail_on: Annotated[
        str | None,
        Opt("Fail if more rows than this are left out: a number or a percentage.", metavar="N|P%"),
    ] = None
    redact_pii: Annotated[
        bool, Opt("Replace mail addresses, phone numbers, cards and home folders.")
    ] = False
    dry_run: Annotated[bool, Opt("Say what is in the logs, and write nothing.")] = False

    @property
    def field_names(self) -> dict[str, str]:
        """Return the field of the rows (FIELD) by the name here (NAME), from `--map NAME=FIELD`;
        empty without any.

        Raises UsageError for an invalid pair or a repeated NAME.
        """
        fields: dict[str, str] = {}
        for pair in self.map:
            ours, sign, theirs = (part.strip() for part in pair.partition("="))
            if not (ours and sign and theirs) or ours in fields:
                raise UsageError(
                    f"--map {pair!r}: expected NAME=FIELD, each NAME once, e.g. reward=score"
                )
            fields[ours] = theirs
        return fields

    @property
    def plan(self) -> ImportPlan:
        """Return what the import is to do."""
        from convbench.formats.reading import ImportPlan

        return ImportPlan(
            format=self.format,
            policy=self.policy,
            names=self.field_names,
            rewards=self.rewards,
            key=self.key,
            split_by=self.split_by,
            fail_on=self.fail_on,
            pii=self.redact_pii,
        )


class ImportAnswer(RunAnswer):
    """`import`: a run of logged conversations, or what it would hold."""

    left_out: int = 0
    """Number of rows that gave no conversation; notes say why."""
    facts: dict[str, str] = Field(default_factory=dict)
    """What was found, by name."""


def run(options: ImportOptions, context: RunContext) -> ImportAnswer:
    """Make a run from logs and return its folder and counts; add the next command."""
    from convbench.rollout.importing import import_run

    imported = import_run(options.file, options.run, options.plan, dry=options.dry_run)
    for text in imported.notes:
        context.add_note(text)
    run_flag = "" if imported.run is None else run_option(imported.run.path)
    if imported.run is not None:
        context.add_next(f"{COUNT}{run_flag}")
    return ImportAnswer(
        run="" if imported.run is None else path_text(imported.run.path),
        conversations=imported.conversations,
        questions=imported.examples,
        rewards=imported.rewards,
        left_out=imported.left_out,
        facts=imported.facts,
    ).with_source(run_flag)


def show(answer: ImportAnswer) -> None:
    """Print the run and what it holds."""
    if answer.run:
        print_fact("run", quoted(answer.run))
    for name, text in answer.facts.items():
        print_fact(name, text)
    if answer.run:
        text = f"name the base model: convbench train swift --model MODEL{answer._source}"
        print_fact("to train", text)


import_command = Command(run, show)
