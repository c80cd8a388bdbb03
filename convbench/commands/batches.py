"""`convbench status` and `cancel`: a run's batches at the provider."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from rich.table import Table
from rich.text import Text

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, print_table, quoted, shell_path
from convbench.options.declare import Opt
from convbench.options.shared import Allowed, CallOptions, RunArgument, SpecFolders
from convbench.util.printable import make_printable

if TYPE_CHECKING:
    from convbench.rollout.batches_status import BatchesStatus, BatchStatus
    from convbench.store import Run

HEADS = ("wave", "model", "state", "calls", "done", "failed", "age", "batch")


@dataclass(frozen=True)
class StatusOptions:
    """Show a run's batches (waves, ages, counts). The provider is asked about batches under way."""

    EXAMPLES: ClassVar = ("convbench status", "convbench status runs/latest")

    run: RunArgument = None
    api_base: Annotated[
        str | None,
        Opt(
            "Address of the server, where it is not the run's.",
            metavar="URL",
            own_file_only=True,
        ),
    ] = None
    specs: SpecFolders = ()
    allow: Allowed = ()


@dataclass(frozen=True)
class CancelOptions(StatusOptions):
    """End a run's batches at the provider; the next resume keeps what was answered by then."""

    EXAMPLES: ClassVar = ("convbench cancel", "convbench cancel runs/latest")


class BatchAnswer(Answer):
    """One batch at a provider."""

    batch: str | None
    """The provider's name for it."""
    wave: int
    """Number of the turn that it belongs to."""
    model: str
    """Reference of the model that is called."""
    state: str
    """The provider's state of it, or how it ended."""
    calls: int
    """Number of calls in it."""
    done: int
    """Number of calls that were answered."""
    failed: int
    """Number of calls that failed or are missing."""
    problem: str | None
    """Why the provider could not be asked; null if it was."""


class BatchesAnswer(Answer):
    """`status`, `cancel`: a run's batches."""

    run: str
    """Its folder."""
    batches: list[BatchAnswer]
    """Batches in the order in which they were sent."""


def status(options: StatusOptions, context: RunContext) -> BatchesAnswer:
    """Return all batches of a run, ended ones too; add the next commands and notes on problems.

    A provider that cannot be asked is a problem of the batch, not an error.
    """
    from convbench.rollout.batches_status import batches_status
    from convbench.store import find_run

    shown = batches_status(find_run(options.run), _call_options(options))
    for batch in shown.open_batches:
        if batch.problem:
            context.add_note(f"wave {batch.sent.wave}: {batch.problem}")
    if shown.open_batches:
        cancels = f"convbench cancel {shell_path(shown.run.path)}   (ends them)"
        context.add_next(*_resume_lines(shown, "waits for them", context), cancels)
    return _make_answer(shown)


def show_status(answer: BatchesAnswer) -> None:
    """Print a run's batches as a table, a row each; without any `batches: none`."""
    shown: BatchesStatus = answer._source
    print_fact("run", quoted(answer.run))
    if not shown.batches:
        print_fact("batches", "none")
        return
    rows = Table(box=None, pad_edge=False)
    for head in HEADS:
        rows.add_column(head, justify="left" if head in ("model", "state", "batch") else "right")
    for batch in shown.batches:
        rows.add_row(*(Text(make_printable(text)) for text in _batch_row(batch)))
    print_table(rows)


def cancel(options: CancelOptions, context: RunContext) -> BatchesAnswer:
    """End a run's batches at the provider, and return all its batches; add the command that
    resumes.

    The exit code becomes 1 if the provider could not be asked about one of them.
    """
    from convbench.rollout.batches_status import cancel_batches
    from convbench.store import find_run

    shown = cancel_batches(find_run(options.run), _call_options(options))
    if shown.open_batches and (
        resume := _resume_lines(shown, "keeps the answers, sends the rest", context)
    ):
        context.add_next(*resume)
    if any(batch.problem for batch in shown.open_batches):
        context.exit_code = 1
    return _make_answer(shown)


def show_cancelled(answer: BatchesAnswer) -> None:
    """Print each batch that the provider had not ended before, with its state or problem, one a
    line.

    Without any it prints `batches: none in progress`. One that the provider no longer knows is
    among them.
    """
    shown: BatchesStatus = answer._source
    asked = [batch for batch in shown.batches if batch.sent.ended is None or batch.problem]
    if not asked:
        print_fact("batches", "none in progress")
    for batch in asked:
        state = batch.problem or (batch.state.status if batch.state else "")
        calls = f"{len(batch.sent.calls):,} calls of {batch.sent.model}: {state}"
        print_fact(f"wave {batch.sent.wave}", calls)


def _call_options(options: StatusOptions | CancelOptions) -> CallOptions:
    return CallOptions(api_base=options.api_base, specs=options.specs, allow=options.allow)


def _make_answer(shown: BatchesStatus) -> BatchesAnswer:
    rows = []
    for batch in shown.batches:
        done, failed = _count_calls(batch)
        rows.append(
            BatchAnswer(
                batch=batch.sent.batch,
                wave=batch.sent.wave,
                model=batch.sent.model,
                state=batch.state.status if batch.state else batch.sent.state,
                calls=len(batch.sent.calls),
                done=done,
                failed=failed,
                problem=batch.problem,
            )
        )
    return BatchesAnswer(run=path_text(shown.run.path), batches=rows).with_source(shown)


def _count_calls(batch: BatchStatus) -> tuple[int, int]:
    """Return (number of answered calls, number of failed ones) of a batch."""
    if batch.sent.ended is not None:
        counts = batch.sent.counts
        return counts.get("answered", 0), counts.get("failed", 0) + counts.get("missing", 0)
    return (batch.state.done, batch.state.failed) if batch.state else (0, 0)


def _batch_row(batch: BatchStatus) -> tuple[str, ...]:
    from convbench.engine.progress import clock_text

    sent, state = batch.sent, batch.state
    done, failed = _count_calls(batch)
    return (
        str(sent.wave),
        sent.model,
        state.status if state else sent.state,
        f"{len(sent.calls):,}",
        f"{done:,}",
        f"{failed:,}",
        "" if sent.ended else clock_text(batch.age_s),
        sent.batch or "",
    )


def _resume_lines(shown: BatchesStatus, remark: str, context: RunContext) -> tuple[str, ...]:
    """Return the command that resumes the open batches. For a comparison of two policies, whose
    names are not recorded, add a note instead and return none."""
    first = shown.open_batches[0]
    mark = first.judge_fingerprint
    judge = "" if mark is None else _judge_option(shown.run, mark)
    if first.is_comparison:
        context.add_note(
            f"wave {first.sent.wave} compares two policies; repeat the command that started it: "
            f"convbench judge --pairwise A B{judge} --batch"
        )
        return ()
    verb = "build" if mark is None else f"judge{judge}"
    return (f"convbench {verb} --run {shell_path(shown.run.path)} --batch   ({remark})",)


def _judge_option(run: Run, fingerprint: str) -> str:
    """Return the option that names a judge as in its verdicts, else by rubric and model."""
    names = [name for name, mark in run.judge_fingerprints() if mark == fingerprint]
    spec = run.judge_specs().get(fingerprint)
    if spec is not None and not names:
        names = [f"{spec.name}@{spec.model}" if spec.model else spec.name]
    return f" --judge {shlex.quote(names[0])}" if names else ""


status_command = Command(status, show_status)
cancel_command = Command(cancel, show_cancelled)
