"""`convbench verify`: recompute every figure, and find records that were changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import err, out, print_fact, print_line, shell_path
from convbench.options.declare import Opt


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


class VerifiedAnswer(Answer):
    """One thing that `verify` checked."""

    what: str
    """run, report, checkpoint, set or model, and its path."""
    found: str
    """What was compared."""
    problems: list[str]
    """What differs from what was written, or from what the records give."""


class VerifyAnswer(Answer):
    """`verify`: whether everything is as it was written and every figure can be recomputed."""

    target: str
    """What was verified."""
    ok: bool
    """Whether nothing is wrong; else the exit code is 1."""
    checked: list[VerifiedAnswer]
    """Everything that was checked."""


def run(options: VerifyOptions, context: RunContext) -> VerifyAnswer:
    """Recompute every figure, compare every file with its seal, and return what was checked.

    The exit code becomes 1 if there is a problem. With `--seal` the run's records are sealed anew
    first.
    """
    from convbench.hub.verify import verify_target

    with err.status("reading every record again"):
        verification = verify_target(options.target, options.revision, seal_anew=options.seal)
    problems = verification.problems
    if any("never sealed" in text or "after the last seal" in text for text in problems):
        context.add_note(
            "records that were never sealed were written by an earlier version, by hand, or by a "
            "command that was cut off; to accept the run as it is: convbench verify RUN --seal"
        )
    context.exit_code = int(bool(problems))
    checked = [
        VerifiedAnswer(what=part.what, found=part.summary, problems=part.problems)
        for part in verification.checked
    ]
    return VerifyAnswer(target=verification.target, ok=not problems, checked=checked)


def show(answer: VerifyAnswer) -> None:
    """Print what was checked, and its problems."""
    for part in answer.checked:
        kind, _, path = part.what.partition(" ")
        print_fact(kind, f"{shell_path(Path(path))}: {part.found or 'cannot be read'}")
        for text in part.problems:
            print_line(out, "  wrong: ", "red", text)
    if answer.ok:
        text = "every file is as it was written, and every figure follows from the records"
        print_fact("verified", text)


verify_command = Command(run, show)
