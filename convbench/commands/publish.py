"""`convbench publish`: publish a run as a dataset, or a checkpoint as a model, on the Hub."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from convbench.commands._command import INTERRUPTED, Answer, Command, RunContext
from convbench.commands._output import err, path_text, print_fact, print_line, quoted, shell_path
from convbench.errors import RunError
from convbench.options.publish import PublishOptions
from convbench.util.terminal import ask_to_continue

if TYPE_CHECKING:
    from convbench.hub.checkpoint import PublishedCheckpoint
    from convbench.hub.collection_card import ExperimentSet
    from convbench.hub.dataset import PublishedDataset

State = Literal["written", "new", "unchanged", "missing"]


class SetAnswer(Answer):
    """One set of an experiment."""

    run: str
    """Folder of its run."""
    repo: str
    """USER/NAME."""
    state: State
    """written (on a dry run), new (a commit was made), unchanged, or missing (it was not sent)."""
    url: str | None
    """Its address; null if it was not sent."""
    conversations: int
    """Number of conversations in it."""


class PublishAnswer(Answer):
    """`publish`: a set or a model on the Hub, or the folder that would be sent."""

    repo: str
    """USER/NAME; of an experiment that of the card of all sets."""
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
    sets: list[SetAnswer] = Field(default_factory=list)
    """The sets of an experiment, in its order."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Runs of an experiment that have no licence to be published, with the reason, by name."""
    collection: str | None = None
    """Address of the Hub's collection of an experiment's sets."""


def run(options: PublishOptions, context: RunContext) -> PublishAnswer:
    """Publish a run or a checkpoint, and return its address, or on a dry run the folder that was
    written.

    On a terminal the user is asked first, unless `--private`, `--public` or `--dry-run` is given.
    Raises RunError if the user declines, ConvbenchError subclasses if it is not fit or cannot be
    sent.
    """
    from convbench.hub.dataset import PublishedDataset
    from convbench.hub.send import publish_target, refuse_unfit

    if options.experiment is not None:
        return _run_experiment(options, context)
    refuse_unfit(options)
    assert options.repo is not None
    _ask_who_sees(options, context, options.repo)
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


def _run_experiment(options: PublishOptions, context: RunContext) -> PublishAnswer:
    """Publish all sets of an experiment. The exit code becomes 1 if an upload failed, 130 after an
    interruption."""
    from convbench.hub.collection import plan_sets, publish_experiment

    count = len(plan_sets(options).sets)
    _ask_who_sees(options, context, f"{options.prefix}, {count} sets and their card")
    done = publish_experiment(options, lambda text: print_line(err, "", "", text))
    for each in done.sets:
        for text in each.written.notes:
            context.add_note(f"{each.run.path.name}: {text}")
    for name, why in done.left_out.items():
        context.add_note(
            f"{name} is not published: {why}; check its terms, then publish it alone: "
            f"convbench publish OWNER/NAME --run {shell_path(done.root / name)}"
        )
    if options.dry_run:
        context.add_next(context.as_typed("--dry-run"))
    elif done.stopped is None:
        context.add_next(f"convbench pull {done.sets[0].repo}")
    else:
        is_error = not isinstance(done.stopped, KeyboardInterrupt)
        context.exit_code = 1 if is_error else INTERRUPTED
        context.add_line("stopped: ", "red", str(done.stopped) if is_error else "interrupted")
        context.add_next(f"{context.as_typed()}   uploads what is missing")
    sent = done.uploaded
    uploads = [each.uploaded for each in done.sets if each.uploaded]
    return PublishAnswer(
        repo=done.repo,
        url=sent and sent.url,
        commit=sent and sent.commit,
        changed=any(upload.changed for upload in [*uploads, *([sent] if sent else [])]),
        folder=done.folder and path_text(done.folder),
        sets=[_set_answer(each, options.dry_run) for each in done.sets],
        left_out=done.left_out,
        collection=done.collection,
    ).with_source((done, path_text(done.root), bool(options.private)))


def _set_answer(each: ExperimentSet, dry_run: bool) -> SetAnswer:
    sent = each.uploaded
    state: State = "written" if dry_run else "missing"
    if sent is not None:
        state = "new" if sent.changed else "unchanged"
    return SetAnswer(
        run=path_text(each.run.path),
        repo=each.repo,
        state=state,
        url=sent and sent.url,
        conversations=sum(each.written.rows["conversations"].values()),
    )


def _row_counts(done: PublishedDataset) -> dict[str, dict[str, int]]:
    return {config: dict(splits) for config, splits in done.dataset.rows.items()}


def _ask_who_sees(options: PublishOptions, context: RunContext, what: str) -> None:
    """Ask before a repository becomes public by default; without a terminal add a note instead.
    Raises RunError if the user declines."""
    if options.dry_run or options.private is not None:
        return
    agreement = ask_to_continue(
        f"{what}: a new repository is open to everybody (without --private)."
    )
    if agreement is None:
        context.add_note(f"{what}: a new repository is open to everybody; to you alone: --private")
        context.print_notes()
    elif not agreement:
        raise RunError(
            f"{what}: nothing was sent; for you alone: --private, for everybody: --public"
        )


def _send_command(options: PublishOptions, what: str) -> str:
    """Return the command that sends what a dry run wrote; `what` names it."""
    flags = {
        "--private": options.private,
        "--public": options.private is False,
    }
    typed = [flag for flag, on in flags.items() if on]
    return " ".join(["convbench publish", str(options.repo), what, *typed])


def show(answer: PublishAnswer) -> None:
    """Print the address of the set or the model, or the folder of a dry run."""
    from convbench.hub.dataset import PublishedDataset

    done: PublishedDataset | PublishedCheckpoint
    done, where, is_private = answer._source
    if answer.sets:
        _show_sets(answer, where, is_private)
        return
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
        _show_folder(answer.folder, is_private)
        return
    state = f"commit {(answer.commit or '')[:12]}" if answer.changed else "nothing new"
    print_fact(
        "dataset" if isinstance(done, PublishedDataset) else "model", f"{answer.url} ({state})"
    )


def _show_folder(folder: str, is_private: bool) -> None:
    print_fact("folder", quoted(folder))
    print_fact("open to", "you alone" if is_private else "everybody (to you alone: --private)")


def _show_sets(answer: PublishAnswer, where: str, is_private: bool) -> None:
    """Print the sets of an experiment with their states, and the addresses of card and
    collection."""
    print_fact("experiment", quoted(where))
    for each in answer.sets:
        address = each.url or each.repo
        print_fact(each.state, f"{address}, {each.conversations:,} conversations")
    counts = Counter(each.state for each in answer.sets)
    numbers = [f"{counts[state]} {state}" for state in counts]
    if answer.left_out:
        numbers.append(f"{len(answer.left_out)} left out")
    print_fact("sets", ", ".join(numbers))
    if answer.folder is not None:
        _show_folder(answer.folder, is_private)
        return
    print_fact("card", answer.url or "missing")
    print_fact("collection", answer.collection or "missing")


publish_command = Command(run, show)
