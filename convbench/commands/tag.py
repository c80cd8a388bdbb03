"""`tag`: a run's tags and note."""

from __future__ import annotations

from convbench.options.look import TagOptions
from convbench.store import Run, find_run
from convbench.store.label import RunLabel, write_label


def tag(options: TagOptions) -> tuple[Run, RunLabel]:
    """Change a run's tags and note; return them as they are now."""
    run = find_run(options.run)
    return run, write_label(run, options.tags, options.untag, options.note)
