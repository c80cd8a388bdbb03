"""What `publish` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convbench.cli.say import fact, next_command, note, shown

if TYPE_CHECKING:
    from pathlib import Path

    from convbench.publish.checkpoint import PublishedCheckpoint
    from convbench.publish.publish import Published
    from convbench.store import Run


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
