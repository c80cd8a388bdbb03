"""`convbench query`, `publish`, `pull`, `import`, `export`: conversations in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convbench.cli.command import command
from convbench.cli.console import out
from convbench.cli.say import fact, next_command, note, of_run, shown
from convbench.options.data import (
    ExportOptions,
    ImportOptions,
    PublishOptions,
    PullOptions,
    QueryOptions,
)

if TYPE_CHECKING:
    from pathlib import Path

    from convbench.publish.checkpoint import PublishedCheckpoint
    from convbench.publish.publish import Published
    from convbench.store import Run

COUNT = 'convbench query "select count(*) from conversations"'


@command("query", QueryOptions)
def query(options: QueryOptions) -> None:
    """Answer SQL."""
    from convbench.commands.query import check_format, query, write_result
    from convbench.store import find_run

    chosen = check_format(options.format, options.out)
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    found = query(options.sql, runs, seconds=options.timeout, hard=True)
    write_result(found, chosen, options.out, out.width)


@command("publish", PublishOptions)
def publish(options: PublishOptions) -> None:
    """Publish a run or a checkpoint."""
    from convbench.commands.publish import published
    from convbench.publish.publish import Published

    run, done = published(options)
    if isinstance(done, Published):
        assert run is not None
        say_published(options.repo, run, done)
    else:
        assert options.checkpoint is not None
        say_checkpoint(options.repo, options.checkpoint, done)


@command("pull", PullOptions)
def pull(options: PullOptions) -> None:
    """Restore a published run."""
    from convbench.commands.pull import pull

    pulled = pull(options.repo, options.run, options.revision)
    fact("run", shown(pulled.run.path))
    fact("from", f"{pulled.repo} at {pulled.commit[:12]}")
    of = of_run(pulled.run.path)
    next_command(f"{COUNT}{of}", f"convbench train swift{of}")


@command("import", ImportOptions)
def import_(options: ImportOptions) -> None:
    """Make a run of logs."""
    from convbench.commands.importing import import_

    done = import_(options.file, options.run)
    fact("run", shown(done.run.path))
    fact(
        "conversations",
        f"{done.conversations} about {done.examples} questions, {done.rewards} with a reward",
    )
    for text in done.notes:
        note(text)
    of = of_run(done.run.path)
    next_command(
        f"convbench train swift --model BASE --dry-run{of}",
        f"convbench train swift --model BASE{of}",
    )


@command("export", ExportOptions)
def export(options: ExportOptions) -> None:
    """Write another trainer's format."""
    from convbench.commands.export import export
    from convbench.store import find_run

    done = export(
        find_run(options.run), options.to, options.out, recipe=options.recipe,
        scale=options.scale, judge=options.judge, seed=options.seed, flagged=options.flagged,
        specs=options.specs,
    )  # fmt: skip
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


def say_published(repo: str, run: Run, done: Published) -> None:
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
        next_command(f"convbench publish {repo} --run {shown(run.path)}")
        return
    state = f"commit {done.uploaded.commit[:12]}" if done.uploaded.changed else "nothing new"
    fact("dataset", f"{done.uploaded.url} ({state})")
    next_command(f"convbench pull {repo}")


def say_checkpoint(repo: str, folder: Path, done: PublishedCheckpoint) -> None:
    """Print where the model lies, or would."""
    fact("checkpoint", shown(folder))
    size = sum(done.files.values()) / 1e6
    fact("files", f"{len(done.files)}, {size:,.1f} MB")
    for text in done.notes:
        note(text)
    if done.uploaded is None:
        fact("folder", shown(done.folder))
        next_command(f"convbench publish {repo} --checkpoint {shown(folder)}")
        return
    state = f"commit {done.uploaded.commit[:12]}" if done.uploaded.changed else "nothing new"
    fact("model", f"{done.uploaded.url} ({state})")
