"""Count what a run holds: conversations, judges, child runs and cost, from the index."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convbench.store.index import VERDICTS, Index
from convbench.store.run import Run


@dataclass(frozen=True)
class RunOverview:
    """Counts, judges and cost of one run."""

    run: Run
    conversations: int
    """Conversations that completed."""
    failed: int
    """Conversations that ended in a recorded failure."""
    judges: tuple[str, ...]
    """Names of the judges that scored it, in the order of their first verdicts."""
    evals: int
    """Number of child runs."""
    usd: float | None
    """Dollars for the newest conversations and verdicts; None if a price is unknown."""

    @property
    def policy(self) -> str:
        """Return the reference of its policy's model, as the manifest has it."""
        return self.run.manifest.policy_member.model


def read_overview(run: Run) -> RunOverview:
    """Return a run's number of conversations, judges, child runs and cost.

    Conversations are counted once a key, by their newest record. `judges` also names those whose
    verdicts all failed. Raises RunError naming a line that cannot be read.
    """
    counts = [0, 0]
    """Conversations that completed, and that failed."""
    usd = 0.0
    """Dollars, nan if a price is unknown."""
    for row in run.conversation_rows():
        counts[not row.ended] += 1
        usd += math.nan if row.usd is None else row.usd
    verdicts = Index(VERDICTS, [run.path / "verdicts.jsonl"])
    judges = dict.fromkeys(row.judge for row in verdicts.all_rows())
    for verdict in verdicts.newest_rows():
        usd += math.nan if verdict.usd is None else verdict.usd
    return RunOverview(
        run=run,
        conversations=counts[0],
        failed=counts[1],
        judges=tuple(judges),
        evals=len(run.child_runs()),
        usd=None if math.isnan(usd) else usd,
    )
