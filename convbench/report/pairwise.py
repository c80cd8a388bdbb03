"""Pairwise comparisons of a section's policies by judges, each pair judged in both orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from convbench.judge.duels import duels_of, in_order
from convbench.report.policies import Policy
from convbench.report.rows import Observation
from convbench.report.sections import Section
from convbench.report.simulators import siblings
from convbench.schema.judge import Comparison
from convbench.stats.bradley_terry import TIMES, Ranking, Round, ranking
from convbench.stats.duels import EVEN, Decision, Duel, Wins, by_group, decide, wins
from convbench.stats.means import side
from convbench.store import Run
from convbench.store.comparisons import comparisons


@dataclass(frozen=True)
class Meeting:
    """Two policies and all their duels by one judge."""

    one: Policy
    other: Policy
    duels: tuple[Duel, ...]
    wins: Wins
    decision: Decision | None
    """The anytime-valid decision, if the judge was asked until it was decided."""

    @property
    def rate(self) -> float:
        """Return the win rate of the first policy; a tie is half a win."""
        return self.wins.rate.mean if self.decision is None else self.decision.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95% interval of the win rate, if there is one."""
        decision = self.decision
        return self.wins.rate.interval if decision is None else (decision.low, decision.high)

    @property
    def winner(self) -> str | None:
        """Return the name of the policy that wins significantly; None if neither does."""
        return {1: self.one.name, -1: self.other.name}.get(side(self.interval, EVEN))


@dataclass(frozen=True)
class Tournament:
    """All meetings of a section's policies, by one judge."""

    judge: str
    policies: tuple[Policy, ...]
    """The policies that met another one, Base first."""
    meetings: tuple[Meeting, ...]
    failed: int
    """Number of comparisons without a preference."""
    mixed: bool = False
    """Whether comparisons under an older rubric or model of the judge were left out."""

    @property
    def decided(self) -> bool:
        """Return True if a meeting was judged sequentially, until decided."""
        return any(meeting.decision is not None for meeting in self.meetings)

    def ranking(self, *, length: bool = False) -> Ranking | None:
        """Return the policies' Bradley-Terry strengths, with `length` at equal length; None if they
        are not finite. They have no intervals if the judge was asked until decided."""
        places = {policy.name: place for place, policy in enumerate(self.policies)}
        words = {row.talk: row.words for p in self.policies for row in p.rows}
        rounds = [
            Round(
                places[m.one.name],
                places[m.other.name],
                duel.value,
                duel.group,
                longer(words.get(duel.one), words.get(duel.other)),
            )
            for m in self.meetings
            for duel in m.duels
        ]
        times = 0 if self.decided else TIMES
        return ranking(len(self.policies), rounds, length=length, times=times)


def tournaments(section: Section) -> list[Tournament]:
    """Return a tournament for each judge that compared policies of the section."""
    found = list(_said(section.policies))
    if not found:
        return []
    ids = {row.talk for policy in section.policies for row in policy.rows}
    inside = [one for one in found if one.first in ids and one.second in ids]
    return [
        made
        for judge in dict.fromkeys(one.judge for one in inside)
        if (made := _tournament(section, judge, [o for o in inside if o.judge == judge])).meetings
    ]


def beside(
    found: Tournament, section: Section, sections: Sequence[Section]
) -> list[tuple[str, Tournament]]:
    """Return (simulated human, tournament) by the same judge in the sections that differ only in
    their simulated human."""
    return [
        (other.simulator, one)
        for other in siblings(section, sections)
        for one in tournaments(other)
        if one.judge == found.judge
    ]


def flips(
    found: Tournament, others: Sequence[tuple[str, Tournament]]
) -> dict[tuple[str, str], str]:
    """Return the reasons why pairs of policies have no winner, by (name, name): one wins
    significantly with this simulated human and loses significantly with another."""
    said = {}
    for simulator, other in others:
        there = {frozenset((m.one.name, m.other.name)): m for m in other.meetings}
        for meeting in found.meetings:
            names = meeting.one.name, meeting.other.name
            back = there.get(frozenset(names))
            if back is None or None in (meeting.winner, back.winner):
                continue
            if meeting.winner != back.winner:
                rate = back.rate if back.one.name == names[0] else 1 - back.rate
                said[names] = (
                    f"{names[0]} over {names[1]} is no win: the ranking flips with simulator "
                    f"{simulator} ({meeting.rate:.3f} here, {rate:.3f} there)"
                )
    return said


def longer(one: int | None, other: int | None) -> float:
    """Return the difference of two lengths as a share of their sum; 0 if either is unknown."""
    return (one - other) / (one + other) if one and other else 0.0


def _tournament(section: Section, judge: str, found: Sequence[Comparison]) -> Tournament:
    newest = max(found, key=lambda one: one.ended).fingerprint
    kept = [one for one in found if one.fingerprint == newest]
    ordered = sorted(section.policies, key=lambda policy: policy.is_base)  # Base last
    meetings = [
        meeting
        for pair in combinations(ordered, 2)
        if (meeting := _meeting(*pair, kept)) is not None
    ]
    met = {policy.name for m in meetings for policy in (m.one, m.other)}
    policies = sorted(
        (policy for policy in section.policies if policy.name in met), key=lambda p: not p.is_base
    )
    failed = sum(one.failure is not None for one in kept)
    return Tournament(judge, tuple(policies), tuple(meetings), failed, mixed=len(kept) < len(found))


def _meeting(one: Policy, other: Policy, found: Sequence[Comparison]) -> Meeting | None:
    mine, theirs = _places(one), _places(other)
    duels = duels_of(found, mine, theirs)
    total = wins(duels)
    if total is None:
        return None
    sides = set(mine), set(theirs)
    between = (c for c in found if (c.first in sides[0]) != (c.second in sides[0]))
    between = (c for c in between if {c.first, c.second} & sides[1])
    decision = None
    if any(c.until_decided for c in between):
        order = in_order((duel.group for duel in duels), found[0].fingerprint)
        decision = decide(by_group(duels, order))
    return Meeting(one, other, tuple(duels), total, decision)


def _places(policy: Policy) -> dict[str, str]:
    """Return the question and sample of each of a policy's conversations, by conversation_id."""
    return {row.talk: _place(row) for row in policy.rows if row.talk}


def _place(row: Observation) -> str:
    return row.unit.rpartition("@")[0]


def _said(policies: Sequence[Policy]) -> Iterator[Comparison]:
    """Yield the comparisons stored in the policies' runs and in the runs that contain these."""
    paths = [run.path.resolve() for run in _runs(policies)]
    above = [path.parents[1] for path in paths if len(path.parts) > 2]
    for path in dict.fromkeys((*paths, *above)):
        if (path / "run.json").exists() and (path / "comparisons.jsonl").exists():
            yield from comparisons(Run.open(path))


def _runs(policies: Sequence[Policy]) -> Iterator[Run]:
    for policy in policies:
        yield policy.run
        yield from (member.run for member in policy.members)
