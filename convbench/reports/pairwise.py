"""Pairwise comparisons of a section's policies by judges, each pair judged in both orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from convbench.judges.duels import duels_of
from convbench.reports.policies import Observation, Policy
from convbench.reports.sections import Section
from convbench.reports.simulators import simulator_siblings
from convbench.schema.judge import Comparison
from convbench.stats.duels import (
    EVEN,
    Duel,
    Ranking,
    Round,
    WinSummary,
    rank_policies,
    summarise_wins,
)
from convbench.stats.means import interval_side
from convbench.store import Run
from convbench.store.notes import newest_comparisons


@dataclass(frozen=True)
class Meeting:
    """Two policies and all their duels by one judge."""

    first: Policy
    second: Policy
    duels: tuple[Duel, ...]
    wins: WinSummary

    @property
    def win_rate(self) -> float:
        """Return the win rate of the first policy, 0 to 1; a tie is half a win."""
        return self.wins.rate.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95% interval of the win rate; None without an error."""
        return self.wins.rate.interval

    @property
    def winner(self) -> str | None:
        """Return the name of the policy on whose side of one half the 95% interval lies; None if it
        contains one half or is None."""
        return {1: self.first.name, -1: self.second.name}.get(interval_side(self.interval, EVEN))


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

    def strength_ranking(self, *, length: bool = False) -> Ranking | None:
        """Return the policies' Bradley-Terry strengths in log odds against the first policy, whose
        strength is 0.

        With `length` they are at equal length of answers. None if they are not finite, e.g. if a
        policy won every duel.
        """
        indices = {policy.name: index for index, policy in enumerate(self.policies)}
        words = {row.conversation_id: row.words for p in self.policies for row in p.observations}
        rounds = [
            Round(
                indices[m.first.name],
                indices[m.second.name],
                duel.value,
                duel.group,
                length_difference(words.get(duel.first_id), words.get(duel.second_id)),
            )
            for m in self.meetings
            for duel in m.duels
        ]
        return rank_policies(len(self.policies), rounds, length=length)


def section_tournaments(section: Section) -> list[Tournament]:
    """Return a tournament for each judge that compared policies of the section, in the order of the
    comparisons.

    Only duels between conversations of the section count, and of each judge only those with its
    newest fingerprint. Empty without any.
    """
    all_comparisons = list(_run_comparisons(section.policies))
    if not all_comparisons:
        return []
    ids = {row.conversation_id for policy in section.policies for row in policy.observations}
    inside = [
        comparison
        for comparison in all_comparisons
        if comparison.first in ids and comparison.second in ids
    ]
    return [
        tournament
        for judge in dict.fromkeys(comparison.judge for comparison in inside)
        if (
            tournament := _judge_tournament(section, judge, [o for o in inside if o.judge == judge])
        ).meetings
    ]


def sibling_tournaments(
    tournament: Tournament, section: Section, sections: Sequence[Section]
) -> list[tuple[str, Tournament]]:
    """Return (simulated human, tournament) by the same judge in the sections that differ only in
    their simulated human."""
    return [
        (other.simulator, candidate)
        for other in simulator_siblings(section, sections)
        for candidate in section_tournaments(other)
        if candidate.judge == tournament.judge
    ]


def flipped_pairs(
    tournament: Tournament, others: Sequence[tuple[str, Tournament]]
) -> dict[tuple[str, str], str]:
    """Return a sentence for each pair of policies of which one wins significantly here and loses
    significantly with another simulated human.

    Keys are (first name, second name) as in `tournament`; `others` are (simulated human,
    tournament). Empty if there is no such pair.
    """
    reasons = {}
    for simulator, other in others:
        other_meetings = {frozenset((m.first.name, m.second.name)): m for m in other.meetings}
        for meeting in tournament.meetings:
            names = meeting.first.name, meeting.second.name
            other_meeting = other_meetings.get(frozenset(names))
            if other_meeting is None or None in (meeting.winner, other_meeting.winner):
                continue
            if meeting.winner != other_meeting.winner:
                rate = (
                    other_meeting.win_rate
                    if other_meeting.first.name == names[0]
                    else 1 - other_meeting.win_rate
                )
                reasons[names] = (
                    f"{names[0]} over {names[1]} is no win: the ranking flips with simulator "
                    f"{simulator} ({meeting.win_rate:.3f} here, {rate:.3f} there)"
                )
    return reasons


def length_difference(first: int | None, second: int | None) -> float:
    """Return (first - second) / (first + second); 0 if either length is unknown or 0."""
    return (first - second) / (first + second) if first and second else 0.0


def _judge_tournament(
    section: Section, judge: str, all_comparisons: Sequence[Comparison]
) -> Tournament:
    newest = max(all_comparisons, key=lambda comparison: comparison.ended).fingerprint
    current = [comparison for comparison in all_comparisons if comparison.fingerprint == newest]
    ordered = sorted(section.policies, key=lambda policy: policy.is_base)  # Base last
    meetings = [
        meeting
        for pair in combinations(ordered, 2)
        if (meeting := _policy_meeting(*pair, current)) is not None
    ]
    met = {policy.name for m in meetings for policy in (m.first, m.second)}
    policies = sorted(
        (policy for policy in section.policies if policy.name in met), key=lambda p: not p.is_base
    )
    failed = sum(comparison.failure is not None for comparison in current)
    return Tournament(
        judge, tuple(policies), tuple(meetings), failed, mixed=len(current) < len(all_comparisons)
    )


def _policy_meeting(
    first: Policy, second: Policy, all_comparisons: Sequence[Comparison]
) -> Meeting | None:
    mine, theirs = _samples_by_talk(first), _samples_by_talk(second)
    duels = duels_of(all_comparisons, mine, theirs)
    total = summarise_wins(duels)
    if total is None:
        return None
    return Meeting(first, second, tuple(duels), total)


def _samples_by_talk(policy: Policy) -> dict[str, str]:
    """Return the question and sample of each of a policy's conversations, by conversation_id."""
    return {
        row.conversation_id: _sample_key(row) for row in policy.observations if row.conversation_id
    }


def _sample_key(row: Observation) -> str:
    return row.unit.rpartition("@")[0]


def _run_comparisons(policies: Sequence[Policy]) -> Iterator[Comparison]:
    """Yield the comparisons stored in the policies' runs and in the runs that contain these."""
    paths = [part.run.path.resolve() for policy in policies for part in policy.run_policies]
    above = [path.parents[1] for path in paths if len(path.parts) > 2]
    for path in dict.fromkeys((*paths, *above)):
        if (path / "run.json").exists() and (path / "comparisons.jsonl").exists():
            yield from newest_comparisons(Run.open(path))
