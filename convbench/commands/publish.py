"""`convbench publish`: publish a run as a dataset, or a checkpoint as a model, on the Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, quoted
from convbench.errors import RunError
from convbench.options.publish import PublishOptions
from convbench.terminal import ask_to_continue

if TYPE_CHECKING:
    from convbench.publish.checkpoint import PublishedCheckpoint
    from convbench.publish.dataset import PublishedDataset


class PublishAnswer(Answer):
    """`publish`: a set or a model on the Hub, or the folder that would be sent."""

    repo: str
    """USER/NAME."""
    url: str | None
    """Its address; null on a dry run."""
    commit: str | None
    """The commit; null on a dry run."""
    changed: bool
    """Whether the upload changed anything."""
    folder: str | None
    """On a dry run: the folder that would be sent."""
    rows: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Number of rows of a set by config and split."""
    files: dict[str, int] = Field(default_factory=dict)
    """Bytes of the files of a model by path."""


def run(options: PublishOptions, context: RunContext) -> PublishAnswer:
    """Publish a run or a checkpoint, and return its address, or on a dry run the folder that was
    written.

    On a terminal the user is asked first, unless `--private`, `--public` or `--dry-run` is given.
    Raises RunError if the user declines, ConvbenchError subclasses if it is not fit or cannot be
    sent.
    """
    from convbench.publish.dataset import PublishedDataset
    from convbench.publish.send import publish_target, refuse_unfit

    refuse_unfit(options)
    _ask_who_sees(options, context)
    parent, done = publish_target(options)
    sent, is_run = done.uploaded, isinstance(done, PublishedDataset)
    where = parent.path if parent is not None else options.checkpoint
    assert where is not None
    folder = done.dataset.folder if isinstance(done, PublishedDataset) else done.folder
    for text in done.dataset.notes if isinstance(done, PublishedDataset) else done.notes:
        context.add_note(text)
    if sent is None:
        option = "--run" if is_run else "--checkpoint"
        context.add_next(_send_command(options, f"{option} {quoted(path_text(where))}"))
    elif is_run:
        context.add_next(f"convbench pull {options.repo}")
    return PublishAnswer(
        repo=options.repo,
        url=sent and sent.url,
        commit=sent and sent.commit,
        changed=sent is not None and sent.changed,
        folder=None if sent else path_text(folder),
        rows=_row_counts(done) if isinstance(done, PublishedDataset) else {},
        files={} if isinstance(done, PublishedDataset) else dict(done.files),
    ).with_source((done, path_text(where), bool(options.private)))


def _row_counts(done: PublishedDataset) -> dict[str, dict[str, int]]:
    return {config: dict(splits) for config, splits in done.dataset.rows.items()}


def _ask_who_sees(options: PublishOptions, context: RunContext) -> None:
    """Ask before a repository becomes public by default; without a terminal add a note instead.
    Raises RunError if the user declines."""
    if options.dry_run or options.private is not None:
        return
    agreement = ask_to_continue(
        f"{options.repo}: a new repository is open to everybody (without --private)."
    )
    if agreement is None:
        context.add_note(
            f"{options.repo}: a new repository is open to everybody; to you alone: --private"
        )
        context.print_notes()
    elif not agreement:
        raise RunError(
            f"{options.repo}: nothing was sent; for you alone: --private, for everybody: --public"
        )


def _send_command(options: PublishOptions, what: str) -> str:
    """Return the command that sends what a dry run wrote; `what` names it."""
    flags = {
        "--private": options.private,
        "--public": options.private is False,
        "--leave-out-leaks": options.leave_out_leaks,
    }
    typed = [flag for flag, on in flags.items() if on]
    return " ".join(["convbench publish", options.repo, what, *typed])


def show(answer: PublishAnswer) -> None:
    """Print the address of the set or the model, or the folder of a dry run."""
    from convbench.publish.dataset import PublishedDataset

    done: PublishedDataset | PublishedCheckpoint
    done, where, is_private = answer._source
    if isinstance(done, PublishedDataset):
        print_fact("run", quoted(where))
        for config, splits in answer.rows.items():
            print_fact(config, ", ".join(f"{split} {count}" for split, count in splits.items()))
        if done.dataset.judge is not None:
            print_fact("reward", f"of judge {done.dataset.judge}")
    else:
        print_fact("checkpoint", quoted(where))
        size = sum(answer.files.values()) / 1e6
        print_fact("files", f"{len(answer.files)}, {size:,.1f} MB")
    if answer.folder is not None:
        print_fact("folder", quoted(answer.folder))
        readers = "you alone" if is_private else "everybody (to you alone: --private)"
        print_fact("open to", readers)
        return
    state = f"commit {(answer.commit or '')[:12]}" if answer.changed else "nothing new"
    print_fact(
        "dataset" if isinstance(done, PublishedDataset) else "model", f"{answer.url} ({state})"
    )


publish_command = Command(run, show)
