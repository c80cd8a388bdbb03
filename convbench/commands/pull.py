"""`pull`: a published set to a run that every command accepts."""

from __future__ import annotations

from pathlib import Path

from convbench.publish.pull import Pulled
from convbench.publish.pull import pull as pull_run
from convbench.store.run import set_latest


def pull(repo: str, run: Path | None = None, revision: str | None = None) -> Pulled:
    """Restore the run in dataset `repo`; it becomes the newest run. `run` is its directory.

    Raises HubError (unreachable, refused, not a sound run) or RunError (directory taken).
    """
    pulled = pull_run(repo, run, revision)
    set_latest(pulled.run)
    return pulled
