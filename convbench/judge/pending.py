"""The conversations of a run that a judge has not scored yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from convbench.judge.resolve import Judge
from convbench.schema import Verdict
from convbench.store import Run
from convbench.store.index import VerdictRow


class PendingConversations:
    """Conversations that a judge has not scored yet, by conversation_id."""

    def __init__(self, run: Run, names: Collection[str], failed: Mapping[str, VerdictRow]) -> None:
        self._run, self._names, self._failed = run, names, failed

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Verdict | None:
        """Return the newest verdict, a failed one; None without a verdict."""
        row = self._failed.get(name)
        return None if row is None else self._run.read_verdict(row)


def find_pending(run: Run, judge: Judge) -> tuple[PendingConversations, int]:
    """Return (pending conversations, number of conversations that are scored)."""
    failed: dict[str, VerdictRow] = {}
    names: set[str] = set()
    scored = 0
    for name, waits in _iter_scorable(run, judge, failed):
        scored += not waits
        if waits:
            names.add(name)
    return PendingConversations(run, names, failed), scored


def has_pending(run: Run, judge: Judge) -> bool:
    """Return whether a judge has a pending conversation. Stops at the first one."""
    return any(waits for _, waits in _iter_scorable(run, judge, {}))


def _iter_scorable(
    run: Run, judge: Judge, failed: dict[str, VerdictRow]
) -> Iterator[tuple[str, bool]]:
    """Yield (conversation_id, whether it is pending) of every conversation that the judge can
    score; adds the judge's failed verdicts to `failed`."""
    scored: set[str] = set()
    for row in run.verdict_rows():
        if row.fingerprint == judge.fingerprint:
            if row.scored:
                scored.add(row.conversation_id)
            else:
                failed[row.conversation_id] = row
    labelled: Collection[str] | None = None
    if judge.labels is not None:
        labelled = judge.scorable_ids({head.conversation_id for head in run.conversation_rows()})
    for head in run.conversation_rows():
        if head.ended and (labelled is None or head.conversation_id in labelled):
            yield head.conversation_id, head.conversation_id not in scored
