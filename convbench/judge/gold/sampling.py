"""Draw conversations for people to label, with known probabilities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from convbench.errors import RunError
from convbench.judge.gold.labels import Gold, draws, family, gold_of, keep_draw, now, rubric
from convbench.schema.gold import Draw, Drawn
from convbench.stats.draw import drawn, expected_apart, gain, probabilities, sizes
from convbench.stats.ppi import Unit, corrected
from convbench.store import Run
from convbench.store.index import VerdictRow
from convbench.words import DrawBy, SplitChoice

OWN = "base"
"""Name of a run's own policy; its evaluations are named as their folders."""


@dataclass
class Place:
    """A unit of drawing: the conversations of all policies on one question and sample."""

    key: str
    group: str
    talks: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By policy: (conversation_id, the judge's score)."""

    @property
    def score(self) -> float:
        """Mean score over its policies."""
        return sum(score for _, score in self.talks.values()) / len(self.talks)


def named(run: Run) -> dict[str, Run]:
    """Return a run's policies by name."""
    return {OWN if not n else one.path.name: one for n, one in enumerate(family(run))}


def headline(verdict: VerdictRow, metric: str) -> float | None:
    """Return a verdict's score of this metric, else its reward."""
    return verdict.scores.get(metric, verdict.reward)


def places(
    run: Run,
    judge: str,
    fingerprint: str,
    metric: str,
    split: SplitChoice,
    policies: Sequence[str] = (),
) -> list[Place]:
    """Return the units with a score of this judge in a split, sorted by key.

    Raises RunError for an unknown policy.
    """
    known = named(run)
    for name in policies:
        if name not in known:
            raise RunError(f"--policy {name}: found {', '.join(known)}; expected one of these")
    found: dict[str, Place] = {}
    for name, one in known.items():
        if policies and name not in policies:
            continue
        scores = {
            v.conversation_id: headline(v, metric)
            for v in one.verdict_rows()
            if v.judge == judge and v.fingerprint == fingerprint and v.scored
        }
        for talk in one.conversations():
            score, example = scores.get(talk.conversation_id), one.examples[talk.example_id]
            if score is None or talk.branch is not None or split not in ("all", example.split):
                continue
            key = f"{talk.example_id}#{talk.sample}@{talk.temperature:g}"
            place = found.setdefault(key, Place(key, example.group_id))
            place.talks[name] = (talk.conversation_id, score)
    return [found[key] for key in sorted(found)]


def the_judge(run: Run, wanted: str | None) -> tuple[str, str]:
    """Return (name, fingerprint) of the judge to correct: the named one, or the only one. Raises
    RunError if there is none, or several and none is named."""
    there: dict[str, str] = {}
    for one in family(run):
        aside = one.reviewers()
        there |= {
            row.judge: row.fingerprint
            for row in one.verdict_rows()
            if row.scored and row.fingerprint not in aside
        }
    judges = {name: mark for name, mark in there.items() if not name.startswith("human:")}
    if wanted is not None and wanted in judges:
        return wanted, judges[wanted]
    if wanted is None and len(judges) == 1:
        return next(iter(judges.items()))
    said = ", ".join(judges) or "no judge"
    expected = "one of these" if judges else "a judged run; run: convbench judge"
    name = f"--judge {wanted}" if wanted else "verdicts"
    raise RunError(f"{run.path}: {name}: found {said}; expected {expected} with --judge")


LEAST = 10
"""Fewest labels for an optimal draw, which must know where people are far from the judge."""


@dataclass(frozen=True)
class Asked:
    """Options of a draw."""

    count: int
    """Number of conversations."""
    by: DrawBy = "uniform"
    judge: str | None = None
    split: SplitChoice = "test"
    policies: tuple[str, ...] = ()
    raters: int = 1
    seed: int | None = None
    """Seed; None takes a different one for each draw of a run."""


@dataclass(frozen=True)
class DrawResult:
    """A new draw with counts."""

    draw: Draw
    policies: dict[str, int]
    """Number of conversations by policy."""
    known: int
    """Number of conversations that are labelled already."""


def draw(run: Run, asked: Asked) -> DrawResult:
    """Draw units, each with every policy's conversation, store the draw and return it.

    Raises RunError if nothing can be drawn, or an optimal draw has too few labels.
    """
    name, mark = the_judge(run, asked.judge)
    metric = rubric(run, mark).headline
    pool = places(run, name, mark, metric, asked.split, asked.policies)
    if not pool:
        raise RunError(
            f"{run.path}: found no conversation of split {asked.split} that judge {name} scored; "
            "expected some: name another --split, or judge first"
        )
    width = max(len(place.talks) for place in pool)
    count = min(len(pool), max(1, round(asked.count / width)))
    gold = gold_of(run, mark)
    seed = len(draws(run)) if asked.seed is None else asked.seed
    rng = random.Random(f"gold {seed}")
    scores = [place.score for place in pool]
    apart = far(pool, gold, metric) if asked.by == "optimal" else None
    chances = probabilities(sizes(asked.by, scores, apart), count)
    taken = drawn(chances, rng, scores if asked.by == "stratified" else None)
    listed = [
        Drawn(conversation_id=talk, chance=chances[i])
        for i in taken
        for talk, _ in rng.sample(list(pool[i].talks.values()), len(pool[i].talks))
    ]
    made = Draw(
        judge=name,
        fingerprint=mark,
        by=asked.by,
        count=count,
        raters=asked.raters,
        seed=seed,
        pool=len(pool),
        drawn=tuple(listed),
        made=now(),
    )
    keep_draw(run, made)
    by_policy: dict[str, int] = {}
    for i in taken:
        for policy in pool[i].talks:
            by_policy[policy] = by_policy.get(policy, 0) + 1
    known = sum(one.conversation_id in gold.scores for one in listed)
    return DrawResult(made, by_policy, known)


def far(pool: Sequence[Place], gold: Gold, metric: str) -> list[float]:
    """Return the expected distance of people from the judge's tuned score, for each unit.

    Raises RunError with fewer than LEAST labels.
    """
    units = _units(pool, gold, metric)
    labelled = [unit for unit in units if unit.gold is not None]
    found = corrected(units)
    if len(labelled) < LEAST or found is None:
        raise RunError(
            f"--by optimal: found {len(labelled)} labels; expected at least {LEAST} in 3 "
            "groups: it draws where people were far from the judge, so draw some another way first"
        )
    rest = [(u.judge, u.gold - found.power * u.judge) for u in labelled if u.gold is not None]
    middle = sum(r for _, r in rest) / len(rest)
    return expected_apart(
        [place.score for place in pool], [(judge, r - middle) for judge, r in rest]
    )


def saving(pool: Sequence[Place], gold: Gold, metric: str, count: int) -> float | None:
    """Return the share of variance that an optimal draw of `count` saves over a uniform one; None
    with too few labels."""
    try:
        apart = far(pool, gold, metric)
    except RunError:
        return None
    scores = [place.score for place in pool]
    return gain(probabilities(sizes("optimal", scores, apart), min(count, len(pool))), apart)


def _units(pool: Sequence[Place], gold: Gold, metric: str) -> list[Unit]:
    """Return every conversation with the judge's score, people's, and its weight."""
    found = []
    for place in pool:
        for talk, score in place.talks.values():
            said = gold.scores.get(talk, {}).get(metric)
            found.append(Unit(place.group, score, said, gold.weights.get(talk, 0.0)))
    return found
