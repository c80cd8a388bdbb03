"""`convbench query`, `publish`, `pull`, `import`, `export`: conversations in and out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from convbench.cli.answers.data import ExportAnswer, PublishAnswer, QueryAnswer
from convbench.cli.answers.runs import RunAnswer
from convbench.cli.command import command
from convbench.cli.console import out
from convbench.cli.envelope import give, wanted
from convbench.cli.say import fact, next_command, note, of_run, path_of, shown
from convbench.errors import RunError
from convbench.options.data import (
    ExportOptions,
    ImportOptions,
    PublishOptions,
    PullOptions,
    QueryOptions,
)
from convbench.terminal import agreed

if TYPE_CHECKING:
    from pathlib import Path

    from convbench.publish.checkpoint import PublishedCheckpoint
    from convbench.publish.publish import Published
    from convbench.store import Run

COUNT = 'convbench query "select count(*) from conversations"'


@command("query", QueryOptions, QueryAnswer)
def query(options: QueryOptions) -> None:
    """Answer SQL."""
    from convbench.commands.query import check_format, query, write_result
    from convbench.store import find_run
    from convbench.store.formats import formulas, render

    chosen = check_format(options.format, options.out)
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    # With --json the answer is still to be written when the query ends.
    found = query(options.sql, runs, seconds=options.timeout, hard=not wanted())
    if wanted():
        rows = json.loads(render(found, "json"))
        give(QueryAnswer(columns=list(found.columns), rows=rows))
    if options.out is not None or not wanted():
        write_result(found, chosen, options.out, out.width)
    if chosen == "csv" and (count := formulas(found)):
        note(
            f"{count} text{'s begin' if count > 1 else ' begins'} as a formula does (=, +, -, @): "
            "have a spreadsheet read these columns as text"
        )


@command("publish", PublishOptions, PublishAnswer)
def publish(options: PublishOptions) -> None:
    """Publish a run or a checkpoint."""
    from convbench.commands.publish import published, refuse_unfit
    from convbench.publish.publish import Published

    refuse_unfit(options)
    _ask_who_sees(options)
    run, done = published(options)
    if isinstance(done, Published):
        assert run is not None
        give(answer_published(options.repo, done))
        say_published(options, run, done)
    else:
        assert options.checkpoint is not None
        give(answer_checkpoint(options.repo, done))
        say_checkpoint(options, options.checkpoint, done)


@command("pull", PullOptions, RunAnswer)
def pull(options: PullOptions) -> None:
    """Restore a published run."""
    from convbench.commands.pull import pull
    from convbench.models.where import names_weights

    pulled = pull(options.repo, options.run, options.revision)
    give(RunAnswer(run=path_of(pulled.run.path), repo=pulled.repo, commit=pulled.commit))
    fact("run", shown(pulled.run.path))
    fact("from", f"{pulled.repo} at {pulled.commit[:12]}")
    of = of_run(pulled.run.path)
    if names_weights(pulled.run.manifest):
        next_command(f"{COUNT}{of}", f"convbench train swift{of}")
        return
    fact("to train", f"name the base model: convbench train swift --model MODEL{of}")
    next_command(f"{COUNT}{of}")


@command("import", ImportOptions, RunAnswer)
def import_(options: ImportOptions) -> None:
    """Make a run of logs."""
    from convbench.commands.importing import import_
    from convbench.store.label import write_label

    done = import_(options.file, options.run, options.names)
    if options.tags or options.note is not None:
        write_label(done.run, options.tags, note=options.note)
    give(
        RunAnswer(
            run=path_of(done.run.path),
            conversations=done.conversations,
            questions=done.examples,
            rewards=done.rewards,
        )
    )
    fact("run", shown(done.run.path))
    fact(
        "conversations",
        f"{done.conversations} about {done.examples} question{'s' * (done.examples != 1)}, "
        f"{done.rewards} with a reward",
    )
    for text in done.notes:
        note(text)
    of = of_run(done.run.path)
    fact("to train", f"name the base model: convbench train swift --model MODEL{of}")
    next_command(f"{COUNT}{of}")


@command("export", ExportOptions, ExportAnswer)
def export(options: ExportOptions) -> None:
    """Write another trainer's format."""
    from convbench.commands.export import export
    from convbench.store import find_run

    done = export(
        find_run(options.run), options.to, options.out, recipe=options.recipe,
        scale=options.scale, judge=options.judge, seed=options.seed, flagged=options.flagged,
        specs=options.specs,
    )  # fmt: skip
    give(
        ExportAnswer(
            files={split: path_of(path) for split, path in done.files.items()},
            rows=done.rows,
            failed=done.failed,
            flagged=done.flagged,
            left_out=done.left_out,
        )
    )
    for split, path in done.files.items():
        fact(split, f"{done.rows[split]} rows in {shown(path)}")
    if done.failed:
        note(f"{done.failed} failed conversations were left out")
    if done.flagged:
        note(f"{done.flagged} flagged conversations were left out; to keep them: --flagged keep")
    if done.left_out > done.negative:
        note(
            f"{done.left_out - done.negative} conversations of weight 0 or without a verdict were "
            "left out"
        )
    for text in done.notes:
        note(text)


def answer_published(repo: str, done: Published) -> PublishAnswer:
    """Return where the set lies, or would."""
    sent = done.uploaded
    return PublishAnswer(
        repo=repo, url=sent and sent.url, commit=sent and sent.commit,
        changed=sent is not None and sent.changed,
        folder=None if sent else path_of(done.laid.folder),
        rows={config: dict(splits) for config, splits in done.laid.rows.items()},
    )  # fmt: skip


def answer_checkpoint(repo: str, done: PublishedCheckpoint) -> PublishAnswer:
    """Return where the model lies, or would."""
    sent = done.uploaded
    return PublishAnswer(
        repo=repo, url=sent and sent.url, commit=sent and sent.commit,
        changed=sent is not None and sent.changed, folder=None if sent else path_of(done.folder),
        files=dict(done.files),
    )  # fmt: skip


def _ask_who_sees(options: PublishOptions) -> None:
    """Ask before something is public that nobody said should be; without a terminal say it."""
    if options.dry_run or options.private is not None:
        return
    said = agreed(f"{options.repo}: a new repository is open to everybody (without --private).")
    if said is None:
        note(f"{options.repo}: a new repository is open to everybody; to you alone: --private")
    elif not said:
        raise RunError(
            f"{options.repo}: nothing was sent; for you alone: --private, for everybody: --public"
        )


def _say_who_sees(options: PublishOptions) -> None:
    """Say who may read what a new repository will hold."""
    fact("open to", "you alone" if options.private else "everybody (to you alone: --private)")


def _for_real(options: PublishOptions, what: str) -> str:
    """Return the command that sends what a dry run wrote; `what` names it."""
    flags = {
        "--private": options.private,
        "--public": options.private is False,
        "--leave-out-leaks": options.leave_out_leaks,
    }
    typed = [flag for flag, on in flags.items() if on]
    return " ".join(["convbench publish", options.repo, what, *typed])


def say_published(options: PublishOptions, run: Run, done: Published) -> None:
    """Print where the set lies, or would."""
    fact("run", shown(run.path))
    for config, splits in done.laid.rows.items():
        fact(config, ", ".join(f"{split} {count}" for split, count in splits.items()))
    if done.laid.judge is not None:
        fact("reward", f"of judge {done.laid.judge}")
    for text in done.laid.notes:
        note(text)
    if done.uploaded is None:
        fact("folder", shown(done.laid.folder))
        _say_who_sees(options)
        next_command(_for_real(options, f"--run {shown(run.path)}"))
        return
    state = f"commit {done.uploaded.commit[:12]}" if done.uploaded.changed else "nothing new"
    fact("dataset", f"{done.uploaded.url} ({state})")
    next_command(f"convbench pull {options.repo}")


def say_checkpoint(options: PublishOptions, folder: Path, done: PublishedCheckpoint) -> None:
    """Print where the model lies, or would."""
    fact("checkpoint", shown(folder))
    size = sum(done.files.values()) / 1e6
    fact("files", f"{len(done.files)}, {size:,.1f} MB")
    for text in done.notes:
        note(text)
    if done.uploaded is None:
        fact("folder", shown(done.folder))
        _say_who_sees(options)
        next_command(_for_real(options, f"--checkpoint {shown(folder)}"))
        return
    state = f"commit {done.uploaded.commit[:12]}" if done.uploaded.changed else "nothing new"
    fact("model", f"{done.uploaded.url} ({state})")
