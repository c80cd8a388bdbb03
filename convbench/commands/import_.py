"""`convbench import`: make a run of conversations and rewards that were logged elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from convbench.commands._command import Command, RunAnswer, RunContext
from convbench.commands._output import COUNT, path_text, print_fact, quoted, run_option
from convbench.errors import UsageError
from convbench.options.declare import Opt
from convbench.options.shared import NewRun


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
    run: NewRun = None
    map: Annotated[
        tuple[str, ...],
        Opt(
            "Field of the rows to read as NAME, e.g. reward=scores.overall; repeat it for several.",
            metavar="NAME=FIELD",
        ),
    ] = ()

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


def run(options: ImportOptions, context: RunContext) -> RunAnswer:
    """Make a run from logs, and return its folder and counts; add the next command."""
    from convbench.rollout.importing import import_run

    imported = import_run(options.file, options.run, options.field_names)
    for text in imported.notes:
        context.add_note(text)
    run_flag = run_option(imported.run.path)
    context.add_next(f"{COUNT}{run_flag}")
    return RunAnswer(
        run=path_text(imported.run.path),
        conversations=imported.conversations,
        questions=imported.examples,
        rewards=imported.rewards,
    ).with_source(run_flag)


def show(answer: RunAnswer) -> None:
    """Print the run and what it holds."""
    print_fact("run", quoted(answer.run))
    print_fact(
        "conversations",
        f"{answer.conversations} about {answer.questions} question{'s' * (answer.questions != 1)}, "
        f"{answer.rewards} with a reward",
    )
    text = f"name the base model: convbench train swift --model MODEL{answer._source}"
    print_fact("to train", text)


import_command = Command(run, show)
