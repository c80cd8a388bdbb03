"""Compare two policies by one judge: each couple of conversations is judged in both orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from convbench.engine.recorded_jobs import run_recorded
from convbench.engine.session import Session
from convbench.judges.ask import form_of
from convbench.judges.duels import Couple, CoupleSet, couple_runs, duels_of, home_of
from convbench.judges.kinds import kind_of
from convbench.judges.model import unreadable_reason
from convbench.judges.pair import (
    PairOrder,
    broken_comparison,
    compare_pair,
    pair_key,
    pair_messages,
)
from convbench.judges.resolve import Judge
from convbench.judges.units import JudgeSummary, Request, Unit
from convbench.judges.work import JudgeWork
from convbench.options.shared import CallOptions
from convbench.schema.judge import Comparison
from convbench.stats.wins import Duel, Wins, win_rate
from convbench.store import Run
from convbench.store.notes import comparison_key, comparisons_file, newest_comparisons


@dataclass
class ComparisonSummary:
    """Result of comparing two policies."""

    names: tuple[str, str]
    home: Run
    """The run that stores the comparisons."""
    couples: CoupleSet
    summary: JudgeSummary
    wins: Wins | None = None


@dataclass(frozen=True)
class Contest:
    """Two runs and the judge that compares them."""

    names: tuple[str, str]
    first: Run
    second: Run
    judge: Judge

    @property
    def home(self) -> Run:
        """The run that stores the comparisons."""
        return home_of(self.first, self.second)


@dataclass
class ContestProgress:
    """Finished comparisons and pending orders of a contest."""

    couples: CoupleSet
    known: dict[tuple[str, str, str], Comparison]
    pending: list[PairOrder] = field(default_factory=list)

    def judged_duels(self) -> list[Duel]:
        """Return the duels whose both orders have a comparison without a failure, in the order of
        the comparisons; empty without any."""
        mine = {c.first.conversation_id: _sample_key(c) for c in self.couples.members}
        theirs = {c.second.conversation_id: _sample_key(c) for c in self.couples.members}
        return duels_of(self.known.values(), mine, theirs)


def contest_progress(contest: Contest) -> ContestProgress:
    """Return a contest's couples, the newest comparison of each order by its judge, and its pending
    orders: those without a comparison, or with a failed one.

    Only comparisons with the judge's fingerprint count. Raise RunError if the runs have no couple,
    UsageError if they are the same run.
    """
    all_couples, mark = couple_runs(contest.first, contest.second), contest.judge.fingerprint
    known = {
        comparison_key(comparison): comparison
        for comparison in newest_comparisons(contest.home)
        if comparison.fingerprint == mark
    }
    out = ContestProgress(all_couples, known)
    for couple in all_couples.members:
        for shown in _both_orders(couple):
            before = known.get((shown.first.conversation_id, shown.second.conversation_id, mark))
            if before is None or before.failure is not None:
                shown = replace(shown, attempts=before.attempts if before else 0)
                out.pending.append(shown)
    return out


async def compare_policies(
    contest: Contest, calls: CallOptions, session: Session
) -> ComparisonSummary:
    """Judge the pending orders of a contest, append each comparison to the home run, and return the
    result.

    Nothing is asked if none is pending. Finished comparisons are not repeated. The caller must hold
    the lock of the home run. Raise RunError if the runs have no couple.
    """
    left, judge = contest_progress(contest), contest.judge
    summary = JudgeSummary(
        judge.name, already_scored=2 * len(left.couples.members) - len(left.pending)
    )
    out = ComparisonSummary(contest.names, contest.home, left.couples, summary)
    if left.pending:
        contest.home.store_judge(judge.fingerprint, judge.spec)
        async with kind_of(judge.spec).open_kind(
            JudgeWork(contest.home, judge, calls, session)
        ) as (
            caller,
            tools,
        ):
            unit = PairUnit(contest, left, summary)
            unit.tools = tools
            summary.jobs = await run_recorded(unit, caller, tools.concurrency)
    out.wins = win_rate(left.judged_duels())
    return out


class PairUnit(Unit[PairOrder, Comparison]):
    """The pending orders of a contest; each is a job with its own record and journal key."""

    def __init__(self, contest: Contest, left: ContestProgress, summary: JudgeSummary) -> None:
        self.file = comparisons_file(contest.home)
        self.judge, self.summary = contest.judge, summary
        self._protocol, self._left = contest.first.manifest.protocol, left
        self._jobs = left.pending
        self._keys = {pair_key(self.judge, shown) for shown in self._jobs}

    def jobs(self) -> Sequence[PairOrder]:
        """Return the pending orders."""
        return self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    async def result(self, job: PairOrder) -> Comparison:
        """Return the judge's comparison of an order; a failed one if no reply could be read.

        Errors that end the run are raised.
        """
        return await compare_pair(self.judge, job, self._protocol, self.tools)

    def failed_result(self, job: PairOrder, error: Exception) -> Comparison:
        """Return the failed comparison of an order whose job raised this error."""
        return broken_comparison(self.judge, job, error)

    def owns(self, key: str) -> bool:
        """Return whether a journal key belongs to one of these orders."""
        return key.rpartition("#")[0] in self._keys

    def count(self, job: PairOrder, result: Comparison) -> None:
        """Add a finished comparison to the known ones, and count a failure."""
        self._left.known[comparison_key(result)] = result
        self.summary.count_failure(result.failure)

    def unreadable(self, result: Comparison) -> str | None:
        """Return a sentence on why no reply of the judge could be read; None for a comparison
        without a failure or with another one."""
        return unreadable_reason(self.judge, result.failure)

    def iter_requests(self) -> Iterator[Request]:
        """Yield (messages, function that returns the reply's JSON schema) for each order, as the
        judge's model would be sent them."""
        schema = form_of(self.judge.spec).schema
        yield from ((pair_messages(self.judge, order), schema) for order in self._jobs)


def _both_orders(couple: Couple) -> Iterable[PairOrder]:
    yield PairOrder(couple.first, couple.second, couple.example)
    yield PairOrder(couple.second, couple.first, couple.example)


def _sample_key(couple: Couple) -> str:
    return f"{couple.first.example_id}#{couple.first.sample}"
