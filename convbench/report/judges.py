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

from convbench.judge.gold.labels import gold_of
from convbench.judge.kinds import kind_of
from convbench.models.families import family_of
from convbench.report.pairwise import tournaments
from convbench.report.policies import Policy, judge_spec
from convbench.report.rows import Observation
from convbench.report.sections import Section
from convbench.schema import JudgeSpec
from convbench.stats.agreement import Agreement, Votes, agreement, alpha, votes
from convbench.stats.covariates import length_bias, self_preference
from convbench.stats.duels import wins
from convbench.stats.means import Estimate

Against = Literal["people", "other judges", "nothing"]
"""The reference that a judge's bias is measured against."""
NONE = -1
"""Stands for a missing word count in an integer array."""
ENOUGH = 10
"""Fewest labelled conversations for which people's scores are the reference."""


@dataclass(frozen=True)
class Moved:
    """Biases of one judge, on the scale of 0 to 1."""

    judge: str
    against: Against
    n: int
    length: Estimate | None
    """Change of the score for twice as many words."""
    own: Estimate | None
    """Score of its own model family minus that of others."""
    first: Estimate | None
    """How often it prefers what is shown first, if it compared pairs; one half is no bias."""


@dataclass(frozen=True)
class PanelOf:
    """Results for all judges of a section together."""

    agreed: tuple[Agreement, ...]
    alpha: float | None
    """Ordinal Krippendorff alpha of the headline scores."""
    votes: Votes | None
    by_people: bool
    """Whether `votes` is computed from errors against people's scores; else it is a lower bound."""
    labelled: int
    """Number of conversations that people scored."""
    moved: tuple[Moved, ...]


class _Said(NamedTuple):
    """One conversation with the scores of all judges and of people, 0 to 1."""

    group: Hashable
    words: int | None
    family: str | None
    scores: Mapping[str, float]
    people: float | None


class _All:
    """Scores of all conversations, stored in columns. Iterating yields one row a conversation."""

    def __init__(self, judges: Sequence[str], said: Iterable[_Said]) -> None:
        self.columns = {name: array("d") for name in judges}
        """Scores by judge, one a conversation; nan if missing."""
        self._groups, self._words = array("q"), array("q")
        self._families, self._known = array("i"), list[str | None]()
        self._people = array("d")
        for one in said:
            for name, column in self.columns.items():
                column.append(one.scores.get(name, math.nan))
            self._groups.append(hash(one.group))
            self._words.append(NONE if one.words is None else one.words)
            if one.family not in self._known:
                self._known.append(one.family)
            self._families.append(self._known.index(one.family))
            self._people.append(math.nan if one.people is None else one.people)

    def __iter__(self) -> Iterator[_Said]:
        names = tuple(self.columns)
        for group, words, family, people, *scores in zip(
            self._groups,
            self._words,
            self._families,
            self._people,
            *self.columns.values(),
            strict=True,
        ):
            found = {name: s for name, s in zip(names, scores, strict=True) if s == s}
            yield _Said(
                group,
                None if words == NONE else words,
                self._known[family],
                found,
                people if people == people else None,
            )


def panel_of(section: Section) -> PanelOf | None:
    """Return the comparison of a section's judges; None if there is a single judge with too few
    labels and no pairwise comparisons."""
    specs = {name: judge_spec(section.policies, name) for name in section.judges}
    judges = [name for name, spec in specs.items() if spec is not None and _scores_talk(spec)]
    said = _All(judges, _said(section, judges, specs))
    labelled = sum(one.people is not None for one in said)
    firsts = _firsts(section)
    if len(judges) < 2 and labelled < ENOUGH and not firsts:
        return None
    errors, by_people = _errors(said, judges)
    moved = [_moved(name, said, specs.get(name), firsts.get(name)) for name in judges]
    moved += [
        Moved(name, "nothing", 0, None, None, first)
        for name, first in firsts.items()
        if name not in judges
    ]
    return PanelOf(
        tuple(_agreed(said, *pair) for pair in combinations(judges, 2)),
        alpha(list(said.columns.values())) if len(judges) > 1 else None,
        votes(errors),
        by_people,
        labelled,
        tuple(moved),
    )


def _scores_talk(spec: JudgeSpec) -> bool:
    """Return True if a judge scores conversations, on one scale for all, and is not people."""
    kind = kind_of(spec)
    return kind.measures == "talk" and "labels" not in kind.needs and not spec.relative


def _said(
    section: Section, judges: Sequence[str], specs: Mapping[str, JudgeSpec | None]
) -> Iterator[_Said]:
    people = [n for n, s in specs.items() if s is not None and "labels" in kind_of(s).needs]
    gold = _gold(section, judges, specs)
    for policy in section.policies:
        family = _family(policy)
        for row in policy.rows:
            scores = {
                name: value
                for name in judges
                if (value := _share(row, name, specs[name])) is not None
            }
            given = [v for name in people if (v := _share(row, name, specs[name])) is not None]
            given += gold.get(row.talk, [])
            if scores:
                yield _Said(row.group, row.words, family, scores, fmean(given) if given else None)


def _gold(
    section: Section, judges: Sequence[str], specs: Mapping[str, JudgeSpec | None]
) -> dict[str, list[float]]:
    """Return gold labels by conversation_id, as a list of one mean. They are rescaled to 0 to 1 by
    the scale of the judge whose metric people scored."""
    found: dict[str, list[float]] = {}
    for policy in section.policies:
        for name in judges:
            spec = specs[name]
            for mark in policy.fingerprints(name) if spec is not None else ():
                assert spec is not None
                low, high = spec.limits(spec.headline)
                for talk, scores in gold_of(policy.run, mark).scores.items():
                    if spec.headline in scores:
                        share = (scores[spec.headline] - low) / (high - low)
                        found.setdefault(talk, []).append(share)
    return {talk: [fmean(shares)] for talk, shares in found.items()}


def _share(row: Observation, judge: str, spec: JudgeSpec | None) -> float | None:
    """Return a judge's headline score rescaled to 0 to 1; None if it has none."""
    found = row.verdicts.get(judge)
    if found is None or found.failed or spec is None or spec.headline not in found.scores:
        return None
    low, high = spec.limits(spec.headline)
    return (found.scores[spec.headline] - low) / (high - low)


def _family(policy: Policy) -> str | None:
    """Return the model family of a policy, or of the model it was trained from."""
    manifest = policy.run.manifest
    speaker = manifest.cast.get(manifest.protocol.policy)
    return family_of(
        speaker.model if speaker else None,
        policy.recipe.get("model"),
        str(policy.training.get("model") or ""),
    )


def _errors(
    said: _All, judges: Sequence[str]
) -> tuple[Iterator[tuple[Hashable, list[float]]], bool]:
    """Return (group, a value a judge) for each conversation that all judges scored, and whether the
    values are errors against people's scores; otherwise they are the scores."""
    whole = (one for one in said if len(one.scores) == len(judges))
    people = sum(one.people is not None for one in said if len(one.scores) == len(judges))
    if people >= ENOUGH:
        return (
            (one.group, [one.scores[name] - one.people for name in judges])
            for one in whole
            if one.people is not None
        ), True
    return ((one.group, [one.scores[name] for name in judges]) for one in whole), False


def _agreed(said: _All, first: str, second: str) -> Agreement:
    groups, one, other = array("q"), array("d"), array("d")
    for row in said:
        if first in row.scores and second in row.scores:
            groups.append(hash(row.group))
            one.append(row.scores[first])
            other.append(row.scores[second])
    return agreement((first, second), groups, one, other)


def _moved(judge: str, said: _All, spec: JudgeSpec | None, first: Estimate | None) -> Moved:
    """Return a judge's biases for length, for its own model family and for the first position."""
    against, leans = _leans(judge, said)
    own = family_of(spec.model if spec else None)
    families = ((one.group, one.family == own, lean) for one, lean in leans() if one.family)
    return Moved(
        judge,
        against,
        sum(1 for _ in leans()),
        length_bias((one.group, one.words, lean) for one, lean in leans() if one.words is not None),
        self_preference(families) if own else None,
        first,
    )


def _leans(judge: str, said: _All) -> tuple[Against, Callable[[], Iterator[tuple[_Said, float]]]]:
    """Return the reference for a judge's scores, and a function that yields (conversation, score
    minus reference)."""

    def mine() -> Iterator[_Said]:
        return (one for one in said if judge in one.scores)

    if sum(one.people is not None for one in mine()) >= ENOUGH:
        return "people", lambda: (
            (one, one.scores[judge] - one.people) for one in mine() if one.people is not None
        )
    if any(len(one.scores) > 1 for one in mine()):
        return "other judges", lambda: (
            (one, one.scores[judge] - fmean(v for k, v in one.scores.items() if k != judge))
            for one in mine()
            if len(one.scores) > 1
        )
    return "nothing", lambda: ((one, one.scores[judge]) for one in mine())


def _firsts(section: Section) -> dict[str, Estimate]:
    """Return, by judge that compared policies, how often it prefers what is shown first."""
    found = {}
    for one in tournaments(section):
        total = wins(duel for meeting in one.meetings for duel in meeting.duels)
        if total is not None:
            found[one.judge] = total.first
    return found
