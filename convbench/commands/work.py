"""`work`: a worker on the shards of a run, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass

from convbench.engine import run as run_loop
from convbench.options.specs import load_plugins
from convbench.options.spread import WorkOptions
from convbench.store import Run, find_run
from convbench.store.claims import Listed, listed
from convbench.workers.board import Board, Watching, look
from convbench.workers.worker import Worked, Worker


@dataclass
class WorkResult:
    """What a worker did, or how far the shards are."""

    run: Run
    board: Board
    worked: Worked | None = None

    @property
    def listed(self) -> Listed:
        """How far the shards are."""
        return self.board.listed


def work(options: WorkOptions) -> WorkResult:
    """Work on a run's shards until nothing is left to do.

    Raises RunError for a run without shards, ConvbenchError subclasses.
    """
    load_plugins(options.specs)
    run = find_run(options.run)
    listed(run.path)  # a run without shards is found before anything begins
    if options.listing:
        return WorkResult(run, look(run))
    worker = Worker(run, options.calls, options.rate)
    if options.calls.budget is not None or options.calls.budget_tokens is not None:
        worker.cap(options.calls.budget, options.calls.budget_tokens)
    with Watching(run, "work", quiet=options.calls.quiet):
        worked = run_loop(worker.work)
    return WorkResult(run, look(run), worked)
