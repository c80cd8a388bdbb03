"""`publish`: a run to the Hub, or to a folder."""

from __future__ import annotations

from pathlib import Path

from convbench.publish.publish import Published
from convbench.publish.publish import publish as publish_run
from convbench.store.run import Run


def publish(
    repo: str,
    run: Run,
    *,
    private: bool = False,
    dry_run: bool = False,
    folder: Path | None = None,
    judge: str | None = None,
    leave_out_leaks: bool = False,
) -> Published:
    """Publish a run as dataset `repo` (OWNER/NAME) in one commit.

    A dry run writes `folder` (RUN/publish) and sends nothing. The same content again makes no
    new commit. Raises RunError (nothing there, secrets, hidden text in messages) or HubError.
    """
    return publish_run(
        run, repo, private=private, dry_run=dry_run, folder=folder, judge=judge,
        leave_out_leaks=leave_out_leaks,
    )  # fmt: skip
