"""A section's judges compared: agreement, effective number of votes, biases.

Scores are each judge's headline metric, rescaled to 0 to 1. If people scored (verdicts from labels,
`human:FILE`, and gold labels), their scores are the reference that judges are compared with.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Literal, NamedTuple

from convbench.judges.gold.labels import gold_of
from convbench.judges.kinds import kind_of
from convbench.reports.pairwise import section_tournaments
from convbench.reports.policies import Observation, judge_spec
from convbench.reports.sections import Section
from convbench.schema import JudgeSpec
from convbench.stats.agreement import (
    EffectiveVotes,
    JudgeAgreement,
    effective_votes,
    judge_agreement,
    krippendorff_alpha,
)
from convbench.stats.covariates import length_bias
from convbench.stats.duels import summarise_wins
from convbench.stats.means import Estimate

BiasReference = Literal["people", "other judges", "nothing"]
"""The reference that a judge's bias is measured against."""
NONE = -1
"""Stands for a missing word count in an integer array."""
ENOUGH = 10
"""Fewest labelled conversations for which people's scores are the reference."""


@dataclass(frozen=True)
class JudgeBias:
    """Biases of one judge, on the scale of 0 to 1."""

    judge: str
    against: BiasReference
    n: int
    length: Estimate | None
    """Change of the score for twice as many words."""
    first: Estimate | None
    """How often it prefers what is shown first, if it compared pairs; one half is no bias."""


@dataclass(frozen=True)
class JudgePanel:
    """Results for all judges of a section together."""

    agreed: tuple[JudgeAgreement, ...]
    alpha: float | None
    """Ordinal Krippendorff alpha of the headline scores."""
    votes: EffectiveVotes | None
    by_people: bool
    """Whether `votes` is computed from errors against people's scores; else it is a lower bound."""
    labelled: int
    """Number of conversations that people scored."""
    biases: tuple[JudgeBias, ...]


class _ScoredConversation(NamedTuple):
    """One conversation with the scores of all judges and of people, 0 to 1."""

    group: Hashable
    words: int | None
    scores: Mapping[str, float]
    people: float | None


class _PanelScores:
    """Scores of all conversations, stored in columns. Iterating yields one row a conversation."""

    def __init__(self, judges: Sequence[str], conversations: Iterable[_ScoredConversation]) -> None:
        self.columns = {name: array("d") for name in judges}
        """Scores by judge, one a conversation; nan if missing."""
        self._groups, self._words = array("q"), array("q")
        self._people = array("d")
        for conversation in conversations:
            for name, column in self.columns.items():
                column.append(conversation.scores.get(name, math.nan))
            self._groups.append(hash(conversation.group))
            self._words.append(NONE if conversation.words is None else conversation.words)
            self._people.append(math.nan if conversation.people is None else conversation.people)

    def __iter__(self) -> Iterator[_ScoredConversation]:
        names = tuple(self.columns)
        for group, words, people, *scores in zip(
            self._groups,
            self._words,
            self._people,
            *self.columns.values(),
            strict=True,
        ):
            known_scores = {name: s for name, s in zip(names, scores, strict=True) if s == s}
            yield _ScoredConversation(
                group,
                None if words == NONE else words,
                known_scores,
                people if people == people else None,
            )


def panel_of(section: Section) -> JudgePanel | None:
    """Return the comparison of a section's judges: agreement of every two, Krippendorff's alpha,
    effective votes and biases.

    Only judges that score conversations on one scale count, not people. None if there are fewer
    than two of them, fewer than 10 labelled conversations, and no pairwise comparisons.
    """
    specs = {name: judge_spec(section.policies, name) for name in section.judges}
    judges = [name for name, spec in specs.items() if spec is not None and _scores_talk(spec)]
    conversations = _PanelScores(judges, _panel_conversations(section, judges, specs))
    labelled = sum(conversation.people is not None for conversation in conversations)
    firsts = _first_preferences(section)
    if len(judges) < 2 and labelled < ENOUGH and not firsts:
        return None
    errors, by_people = _judge_errors(conversations, judges)
    biases = [_judge_bias(name, conversations, firsts.get(name)) for name in judges]
    biases += [
        JudgeBias(name, "nothing", 0, None, first)
        for name, first in firsts.items()
        if name not in judges
    ]
    return JudgePanel(
        tuple(_judge_agreement(conversations, *pair) for pair in combinations(judges, 2)),
        krippendorff_alpha(list(conversations.columns.values())) if len(judges) > 1 else None,
        effective_votes(errors),
        by_people,
        labelled,
        tuple(biases),
    )


def _scores_talk(spec: JudgeSpec) -> bool:
    """Return True if a judge scores conversations, on one scale for all, and is not people."""
    kind = kind_of(spec)
    return kind.measures == "talk" and "labels" not in kind.needs and not spec.is_relative


def _panel_conversations(
    section: Section, judges: Sequence[str], specs: Mapping[str, JudgeSpec | None]
) -> Iterator[_ScoredConversation]:
    people = [n for n, s in specs.items() if s is not None and "labels" in kind_of(s).needs]
    gold = _gold_means(section, judges, specs)
    for policy in section.policies:
        for row in policy.observations:
            scores = {
                name: value
                for name in judges
                if (value := _headline_share(row, name, specs[name])) is not None
            }
            people_scores = [
                v for name in people if (v := _headline_share(row, name, specs[name])) is not None
            ]
            people_scores += gold.get(row.conversation_id, [])
            if scores:
                yield _ScoredConversation(
                    row.group,
                    row.words,
                    scores,
                    fmean(people_scores) if people_scores else None,
                )


def _gold_means(
    section: Section, judges: Sequence[str], specs: Mapping[str, JudgeSpec | None]
) -> dict[str, list[float]]:
    """Return gold labels by conversation_id, as a list of one mean. They are rescaled to 0 to 1 by
    the scale of the judge whose metric people scored."""
    shares_by_talk: dict[str, list[float]] = {}
    for part in (part for policy in section.policies for part in policy.run_policies):
        for name in judges:
            spec = specs[name]
            for mark in part.fingerprints(name) if spec is not None else ():
                assert spec is not None
                low, high = spec.score_limits(spec.headline_metric)
                for talk, scores in gold_of(part.run, mark).scores.items():
                    if spec.headline_metric in scores:
                        share = (scores[spec.headline_metric] - low) / (high - low)
                        shares_by_talk.setdefault(talk, []).append(share)
    return {talk: [fmean(shares)] for talk, shares in shares_by_talk.items()}


def _headline_share(row: Observation, judge: str, spec: JudgeSpec | None) -> float | None:
    """Return a judge's headline score rescaled to 0 to 1; None if it has none."""
    verdict = row.verdicts.get(judge)
    if (
        verdict is None
        or verdict.failed
        or spec is None
        or spec.headline_metric not in verdict.scores
    ):
        return None
    low, high = spec.score_limits(spec.headline_metric)
    return (verdict.scores[spec.headline_metric] - low) / (high - low)


def _judge_errors(
    panel_scores: _PanelScores, judges: Sequence[str]
) -> tuple[Iterator[tuple[Hashable, list[float]]], bool]:
    """Return (group, a value a judge) for each conversation that all judges scored, and whether the
    values are errors against people's scores; otherwise they are the scores."""
    complete = (
        conversation for conversation in panel_scores if len(conversation.scores) == len(judges)
    )
    people = sum(
        conversation.people is not None
        for conversation in panel_scores
        if len(conversation.scores) == len(judges)
    )
    if people >= ENOUGH:
        return (
            (
                conversation.group,
                [conversation.scores[name] - conversation.people for name in judges],
            )
            for conversation in complete
            if conversation.people is not None
        ), True
    return (
        (conversation.group, [conversation.scores[name] for name in judges])
        for conversation in complete
    ), False


def _judge_agreement(panel_scores: _PanelScores, first: str, second: str) -> JudgeAgreement:
    groups, first_scores, second_scores = array("q"), array("d"), array("d")
    for row in panel_scores:
        if first in row.scores and second in row.scores:
            groups.append(hash(row.group))
            first_scores.append(row.scores[first])
            second_scores.append(row.scores[second])
    return judge_agreement((first, second), groups, first_scores, second_scores)


def _judge_bias(judge: str, panel_scores: _PanelScores, first: Estimate | None) -> JudgeBias:
    """Return a judge's biases for length and for the first position."""
    against, leans = _bias_reference(judge, panel_scores)
    return JudgeBias(
        judge,
        against,
        sum(1 for _ in leans()),
        length_bias(
            (conversation.group, conversation.words, lean)
            for conversation, lean in leans()
            if conversation.words is not None
        ),
        first,
    )


def _bias_reference(
    judge: str, panel_scores: _PanelScores
) -> tuple[BiasReference, Callable[[], Iterator[tuple[_ScoredConversation, float]]]]:
    """Return the reference for a judge's scores, and a function that yields (conversation, score
    minus reference)."""

    def own_conversations() -> Iterator[_ScoredConversation]:
        return (conversation for conversation in panel_scores if judge in conversation.scores)

    if sum(conversation.people is not None for conversation in own_conversations()) >= ENOUGH:
        return "people", lambda: (
            (conversation, conversation.scores[judge] - conversation.people)
            for conversation in own_conversations()
            if conversation.people is not None
        )
    if any(len(conversation.scores) > 1 for conversation in own_conversations()):
        return "other judges", lambda: (
            (
                conversation,
                conversation.scores[judge]
                - fmean(v for k, v in conversation.scores.items() if k != judge),
            )
            for conversation in own_conversations()
            if len(conversation.scores) > 1
        )
    return "nothing", lambda: (
        (conversation, conversation.scores[judge]) for conversation in own_conversations()
    )


def _first_preferences(section: Section) -> dict[str, Estimate]:
    """Return, by judge that compared policies, how often it prefers what is shown first."""
    preferences = {}
    for tournament in section_tournaments(section):
        total = summarise_wins(duel for meeting in tournament.meetings for duel in meeting.duels)
        if total is not None:
            preferences[tournament.judge] = total.first
    return preferences
