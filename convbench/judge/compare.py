"""Compare two policies by one judge: each couple of conversations is judged in both orders.

With `until_decided` groups are judged in batches, and judging stops as soon as the winner is
certain (`convbench.stats.duels`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from convbench.engine import Summary
from convbench.engine.recorded_jobs import run_recorded
from convbench.judge.ask import form_of
from convbench.judge.duels import Couple, Couples, couples, duels_of, home_of, in_order
from convbench.judge.kinds import kind_of
from convbench.judge.model import unreadable
from convbench.judge.pair import Shown, broken, key_of, pair_messages, prefer
from convbench.judge.resolve import Judge
from convbench.judge.units import Judged, Request, Unit
from convbench.judge.work import Tools, Work
from convbench.options.shared import CallOptions
from convbench.schema.judge import Comparison
from convbench.stats.duels import Decision, Duel, Wins, by_group, decide, wins
from convbench.store import Run
from convbench.store.comparisons import asked, comparisons, comparisons_file


@dataclass
class Compared:
    """Result of comparing two policies."""

    names: tuple[str, str]
    home: Run
    """The run that stores the comparisons."""
    couples: Couples
    judged: Judged
    wins: Wins | None = None
    decision: Decision | None = None
    """The anytime-valid interval; None unless judged `until_decided`."""
    groups: int = 0
    """Number of groups in both runs."""
    spared: int = 0
    """Orders that were not judged because the winner was certain."""


@dataclass(frozen=True)
class Contest:
    """Two runs and the judge that compares them."""

    names: tuple[str, str]
    one: Run
    other: Run
    judge: Judge
    until_decided: bool = False

    @property
    def home(self) -> Run:
        """The run that stores the comparisons."""
        return home_of(self.one, self.other)


@dataclass
class Todo:
    """Finished comparisons and pending orders of a contest, by group in the judge's order."""

    couples: Couples
    order: list[str]
    known: dict[tuple[str, str, str], Comparison]
    pending: dict[str, list[Shown]] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Number of orders that are still to be judged."""
        return sum(map(len, self.pending.values()))

    def duels(self) -> list[Duel]:
        """Return the duels whose both orders are judged."""
        mine = {c.one.conversation_id: _place(c) for c in self.couples.found}
        theirs = {c.other.conversation_id: _place(c) for c in self.couples.found}
        return duels_of(self.known.values(), mine, theirs)

    def whole(self) -> list[str]:
        """Return the groups without a pending order."""
        return [name for name in self.order if not self.pending.get(name)]

    def decision(self) -> Decision | None:
        """Return the decision from the fully judged groups; None without any."""
        return decide(by_group(self.duels(), self.whole()))


def todo(contest: Contest) -> Todo:
    """Return the progress of a contest. Raises RunError if the runs have no couple."""
    found, mark = couples(contest.one, contest.other), contest.judge.fingerprint
    known = {asked(one): one for one in comparisons(contest.home) if one.fingerprint == mark}
    out = Todo(found, in_order((c.example.group_id for c in found.found), mark), known)
    for couple in found.found:
        for shown in _orders(couple, contest.until_decided):
            before = known.get((shown.first.conversation_id, shown.second.conversation_id, mark))
            if before is None or before.failure is not None:
                shown = replace(shown, asked=before.attempts if before else 0)
                out.pending.setdefault(couple.example.group_id, []).append(shown)
    return out


async def compare(contest: Contest, calls: CallOptions) -> Compared:
    """Judge the pending orders of a contest and return the result. The caller must hold the lock
    of its home run."""
    left, judge = todo(contest), contest.judge
    judged = Judged(judge.name, kept=2 * len(left.couples.found) - left.left)
    out = Compared(contest.names, contest.home, left.couples, judged, groups=len(left.order))
    if left.left and not _over(contest, left):
        contest.home.keep_judge(judge.fingerprint, judge.spec)
        async with kind_of(judge.spec).opened(Work(contest.home, judge, calls)) as (caller, tools):
            whole = left.left
            for groups in _parts(contest, left, tools):
                unit = Orders(contest, left, groups, judged)
                unit.tools = tools
                jobs = await run_recorded(unit, caller, tools.concurrency, whole)
                judged.jobs = _sum(judged.jobs, jobs)
                if jobs.interrupted or jobs.stopped or _over(contest, left):
                    break
    if contest.until_decided:
        out.decision = left.decision()
        out.spared = left.left if out.decision and out.decision.decided else 0
    out.wins = wins(left.duels())
    return out


def _over(contest: Contest, left: Todo) -> bool:
    """Return whether the contest is judged `until_decided` and its winner is certain."""
    if not contest.until_decided:
        return False
    found = left.decision()
    return found is not None and found.decided != 0


def _parts(contest: Contest, left: Todo, tools: Tools) -> Iterator[list[str]]:
    """Yield batches of groups to judge together: all at once, or with `until_decided` as many as
    keep all concurrent calls busy."""
    names = [name for name in left.order if left.pending.get(name)]
    each = left.left / max(1, len(names))
    size = len(names)
    if contest.until_decided:
        size = min(max(1, math.ceil(tools.concurrency / each)), max(1, math.ceil(size / 20)))
    yield from (names[at : at + size] for at in range(0, len(names), size))


class Orders(Unit[Shown, Comparison]):
    """Pending orders of some groups; each order is a job with its own record and journal key."""

    def __init__(self, contest: Contest, left: Todo, groups: Sequence[str], judged: Judged) -> None:
        self.file = comparisons_file(contest.home)
        self.judge, self.judged = contest.judge, judged
        self._protocol, self._left = contest.one.manifest.protocol, left
        self._jobs = [shown for name in groups for shown in left.pending[name]]
        self._keys = {key_of(self.judge, shown) for shown in self._jobs}

    def jobs(self) -> Sequence[Shown]:
        """Return the pending orders of these groups."""
        return self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    async def result(self, job: Shown) -> Comparison:
        """Return the judge's comparison."""
        return await prefer(self.judge, job, self._protocol, self.tools)

    def failed_result(self, job: Shown, error: Exception) -> Comparison:
        """Return a failed comparison with this error."""
        return broken(self.judge, job, error)

    def owns(self, key: str) -> bool:
        """Return whether a journal key belongs to one of these orders."""
        return key.rpartition("#")[0] in self._keys

    def key_prefix(self, job: Shown) -> str:
        """Return the prefix of the journal keys of an order."""
        return f"{key_of(self.judge, job)}#"

    def count(self, job: Shown, result: Comparison) -> None:
        """Add a finished comparison to the known ones and count its failure, if it has one."""
        self._left.known[asked(result)] = result
        if result.failure is None:
            self._left.pending[job.example.group_id].remove(job)
        self.judged.count(result.failure)

    def unreadable(self, result: Comparison) -> str | None:
        """Return why the judge's replies could not be read; None if they could."""
        return unreadable(self.judge, result.failure)

    def requests(self) -> Iterator[Request]:
        """Yield what a judge's model would be sent, order by order."""
        schema = form_of(self.judge.spec).schema
        yield from ((pair_messages(self.judge, one), schema) for one in self._jobs)


def _orders(couple: Couple, until_decided: bool) -> Iterable[Shown]:
    yield Shown(couple.one, couple.other, couple.example, until_decided)
    yield Shown(couple.other, couple.one, couple.example, until_decided)


def _place(couple: Couple) -> str:
    return f"{couple.one.example_id}#{couple.one.sample}"


def _sum(one: Summary, other: Summary) -> Summary:
    return Summary(
        one.done + other.done, one.failed + other.failed, other.interrupted, other.stopped
    )
