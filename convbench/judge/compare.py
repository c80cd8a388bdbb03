"""One judge at work on two policies: each couple in both orders, kept and counted.

With `until_decided` groups are taken some at a time, and no more are asked about once it is sure
who wins (`convbench.stats.duels`).
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
    """What comparing two policies came to."""

    names: tuple[str, str]
    home: Run
    """The run that keeps it."""
    couples: Couples
    judged: Judged
    wins: Wins | None = None
    decision: Decision | None = None
    """Where it was asked until decided."""
    groups: int = 0
    """Groups there are."""
    spared: int = 0
    """Orders that were not asked, for it was decided."""


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
        """The run that keeps the comparisons."""
        return home_of(self.one, self.other)


@dataclass
class Todo:
    """What is still to be asked, by group in the judge's order, and what has been."""

    couples: Couples
    order: list[str]
    known: dict[tuple[str, str, str], Comparison]
    pending: dict[str, list[Shown]] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Orders that are still to be asked."""
        return sum(map(len, self.pending.values()))

    def duels(self) -> list[Duel]:
        """Return the duels that are judged in both orders."""
        mine = {c.one.conversation_id: _place(c) for c in self.couples.found}
        theirs = {c.other.conversation_id: _place(c) for c in self.couples.found}
        return duels_of(self.known.values(), mine, theirs)

    def whole(self) -> list[str]:
        """Return the groups of which nothing is pending."""
        return [name for name in self.order if not self.pending.get(name)]

    def decision(self) -> Decision | None:
        """Return what is sure of the groups that are wholly judged."""
        return decide(by_group(self.duels(), self.whole()))


def todo(contest: Contest) -> Todo:
    """Return what a contest was asked and what was not. Raises RunError without a couple."""
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
    """Ask what has not been asked of a contest, under the lock of its home that the caller
    holds."""
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
    """Whether nothing more need be asked."""
    if not contest.until_decided:
        return False
    found = left.decision()
    return found is not None and found.decided != 0


def _parts(contest: Contest, left: Todo, tools: Tools) -> Iterator[list[str]]:
    """Yield groups to ask about together: all, or as many as keep the calls in flight busy."""
    names = [name for name in left.order if left.pending.get(name)]
    each = left.left / max(1, len(names))
    size = len(names)
    if contest.until_decided:
        size = min(max(1, math.ceil(tools.concurrency / each)), max(1, math.ceil(size / 20)))
    yield from (names[at : at + size] for at in range(0, len(names), size))


class Orders(Unit[Shown, Comparison]):
    """Couples of some groups in one order each: a job, a record and a journal key of its own."""

    def __init__(self, contest: Contest, left: Todo, groups: Sequence[str], judged: Judged) -> None:
        self.file = comparisons_file(contest.home)
        self.judge, self.judged = contest.judge, judged
        self._protocol, self._left = contest.one.manifest.protocol, left
        self._jobs = [shown for name in groups for shown in left.pending[name]]
        self._keys = {key_of(self.judge, shown) for shown in self._jobs}

    def jobs(self) -> Sequence[Shown]:
        """Return what is still to be asked about these groups."""
        return self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    async def result(self, job: Shown) -> Comparison:
        """Return what the judge prefers."""
        return await prefer(self.judge, job, self._protocol, self.tools)

    def failed_result(self, job: Shown, error: Exception) -> Comparison:
        """Return a comparison without scores that says why."""
        return broken(self.judge, job, error)

    def owns(self, key: str) -> bool:
        """Whether a call is about one of these."""
        return key.rpartition("#")[0] in self._keys

    def key_prefix(self, job: Shown) -> str:
        """Return what the keys of its calls begin with."""
        return f"{key_of(self.judge, job)}#"

    def count(self, job: Shown, result: Comparison) -> None:
        """Note what is known by now."""
        self._left.known[asked(result)] = result
        if result.failure is None:
            self._left.pending[job.example.group_id].remove(job)
        self.judged.count(result.failure)

    def unreadable(self, result: Comparison) -> str | None:
        """Return why nothing could be read of the judge's replies."""
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
