"""What a judge has still to score of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from convbench.judge.resolve import Judge
from convbench.schema import Verdict
from convbench.store import Run
from convbench.store.keys import Names


class Pending:
    """What a judge has still to score, by conversation_id."""

    def __init__(self, names: Names, failed: Mapping[str, Verdict]) -> None:
        self._names, self._failed = names, failed

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Verdict | None:
        """Return the newest verdict, a failed one; None where there is none."""
        return self._failed.get(name)


def unscored(run: Run, judge: Judge) -> tuple[Pending, int]:
    """Return (what has no verdict with scores, how many conversations have one)."""
    failed: dict[str, Verdict] = {}
    kept = 0

    def names() -> Iterator[str]:
        nonlocal kept
        for name, waits in _scorable(run, judge, failed):
            kept += not waits
            if waits:
                yield name

    return Pending(Names(names()), failed), kept


def waiting(run: Run, judge: Judge) -> bool:
    """Whether a judge has still something to score; looks no further than the first."""
    return any(waits for _, waits in _scorable(run, judge, {}))


def _scorable(run: Run, judge: Judge, failed: dict[str, Verdict]) -> Iterator[tuple[str, bool]]:
    """Yield every conversation that the judge may score and whether it has still to; keep its
    verdicts that are failures."""
    scored = Names(_scored(run, judge, failed))
    wanted: Collection[str] | None = None
    if judge.labels is not None:
        wanted = judge.scorable({one.conversation_id for one in run.heads()})
    for one in run.heads():
        if one.ended and (wanted is None or one.conversation_id in wanted):
            yield one.conversation_id, one.conversation_id not in scored


def _scored(run: Run, judge: Judge, failed: dict[str, Verdict]) -> Iterator[str]:
    """Yield what the judge gave scores; keep its verdicts that are failures."""
    for verdict in run.verdicts():
        if verdict.fingerprint == judge.fingerprint:
            if verdict.failure is None:
                yield verdict.conversation_id
            else:
                failed[verdict.conversation_id] = verdict
