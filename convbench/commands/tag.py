"""`convbench tag`: change the tags and the note of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from convbench.commands._command import Command, RunAnswer, RunContext
from convbench.commands._output import path_text, print_fact, quoted
from convbench.options.declare import Opt
from convbench.options.shared import RunArgument, RunNote, Tags


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


def run(options: TagOptions, context: RunContext) -> RunAnswer:
    """Change a run's tags and note (`write_label`), and return all that it has now."""
    from convbench.store import find_run
    from convbench.store.notes import write_label

    target = find_run(options.run)
    label = write_label(target, options.tags, options.untag, options.note)
    return RunAnswer(run=path_text(target.path), tags=list(label.tags), note=label.note)


def show(answer: RunAnswer) -> None:
    """Print the run, its tags and its note."""
    print_fact("run", quoted(answer.run))
    print_fact("tags", ", ".join(answer.tags) or "none")
    if answer.note:
        print_fact("note", answer.note)


tag_command = Command(run, show)
