"""`convbench query`, `publish`, `pull`, `import`, `export`: conversations in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from convbench.cli.main import app
from convbench.cli.options import RunDir, RunDirs


@app.command(
    epilog="Examples:\n\n"
    '  convbench query "select temperature, avg(correct::int) from conversations group by 1"\n\n'
    '  convbench query "select * from verdicts where overall < 3" --format csv\n\n'
    '  convbench query "describe conversations"'
)
def query(
    sql: Annotated[
        str,
        typer.Argument(help="One SELECT; tables: examples, conversations, turns, verdicts, runs."),
    ],
    run: RunDirs = None,
    form: Annotated[
        Literal["table", "json", "csv", "parquet"],
        typer.Option("--format", help="How the result is written."),
    ] = "table",
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File to write it to.")
    ] = None,
) -> None:
    """Ask a run, or several, in SQL (DuckDB, read-only)."""
    from convbench.cli.console import out
    from convbench.commands.query import check_format, query, write_result
    from convbench.store import find_run

    chosen = check_format(form, out_file)
    runs = [find_run(path) for path in run] if run else [find_run(None)]
    write_result(query(sql, runs), chosen, out_file, out.width)


@app.command(
    epilog="Examples:\n\n"
    "  convbench publish me/arc-thinking --dry-run\n\n"
    "  convbench publish me/arc-thinking --private\n\n"
    "  convbench publish me/arc-swift --checkpoint runs/latest/checkpoints/swift"
)
def publish(
    repo: Annotated[str, typer.Argument(metavar="REPO_ID", help="OWNER/NAME on the Hub.")],
    run: RunDir = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Publish this checkpoint as a model, not the run."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="Whose reward stands beside messages and results, if several judged."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Make a new repository private.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the folder that would be sent; send nothing.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where --dry-run writes; without it RUN/publish (DIR/publish)."
        ),
    ] = None,
    leave_out_leaks: Annotated[
        bool,
        typer.Option(
            "--leave-out-leaks",
            help="Leave out conversations whose messages hold "
            "hidden text; without it they stop the publishing.",
        ),
    ] = False,
) -> None:
    """Publish a run as a dataset (parquet, card, all that `pull` needs), or a checkpoint as a
    model with its card."""
    from convbench.cli.say_data import say_checkpoint, say_published
    from convbench.commands.publish import publish, publish_model
    from convbench.store import find_run

    if checkpoint is not None:
        if leave_out_leaks:
            raise typer.BadParameter("--leave-out-leaks is for runs; leave it out")
        sent = publish_model(
            repo, checkpoint, run, private=private, dry_run=dry_run, target=folder, judge=judge
        )
        say_checkpoint(repo, checkpoint, sent)
        return
    found = find_run(run)
    say_published(
        repo,
        found,
        publish(
            repo,
            found,
            private=private,
            dry_run=dry_run,
            folder=folder,
            judge=judge,
            leave_out_leaks=leave_out_leaks,
        ),
    )


@app.command(epilog="Example:\n\n  convbench pull me/arc-thinking")
def pull(
    repo: Annotated[str, typer.Argument(metavar="REPO_ID", help="OWNER/NAME on the Hub.")],
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run goes; without it into runs/.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit; without it main.")
    ] = None,
) -> None:
    """Restore a published run, which every command then accepts."""
    from convbench.cli.say import fact, next_command, shown
    from convbench.commands.pull import pull

    pulled = pull(repo, run, revision)
    fact("run", shown(pulled.run.path))
    fact("from", f"{pulled.repo} at {pulled.commit[:12]}")
    next_command('convbench query "select count(*) from conversations"', "convbench train swift")


@app.command(
    "import",
    epilog="Example:\n\n  convbench import logs.jsonl     then: convbench train swift",
)
def import_(
    file: Annotated[
        Path,
        typer.Argument(help="JSON lines: messages and reward; optional group, temperature, split."),
    ],
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run goes; without it into runs/.")
    ] = None,
) -> None:
    """Make a run of conversations and rewards that were logged elsewhere."""
    from convbench.cli.say import fact, next_command, note, shown
    from convbench.commands.importing import import_

    done = import_(file, run)
    fact("run", shown(done.run.path))
    fact(
        "conversations",
        f"{done.conversations} about {done.examples} questions, {done.rewards} with a reward",
    )
    for text in done.notes:
        note(text)
    next_command(
        "convbench train swift --model BASE --dry-run", "convbench train swift --model BASE"
    )


@app.command(
    epilog="Examples:\n\n"
    "  convbench export --to trl --recipe swift\n\n"
    "  convbench export --to openai --recipe refit --scale 3"
)
def export(
    to: Annotated[
        Literal["trl", "openai", "sharegpt", "ms-swift"], typer.Option(help="The format.")
    ],
    run: RunDir = None,
    recipe: Annotated[
        str | None, typer.Option(help="Weigh the train split: refit, swift or star-gate.")
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(help="Repeat whole conversations floor or ceil of scale * weight times."),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="Whose reward weighs, where several judged.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the rounding.")] = 0,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder; without it RUN/export/FORMAT."),
    ] = None,
) -> None:
    """Write a run in another trainer's format, one file a split."""
    from convbench.cli.say import fact, note, shown
    from convbench.commands.export import export
    from convbench.store import find_run

    done = export(find_run(run), to, out_dir, recipe=recipe, scale=scale, judge=judge, seed=seed)
    for split, path in done.files.items():
        fact(split, f"{done.rows[split]} rows in {shown(path)}")
    if done.failed:
        note(f"{done.failed} failed conversations were left out")
    if done.left_out:
        note(f"{done.left_out} conversations of weight 0 or without a verdict were left out")
