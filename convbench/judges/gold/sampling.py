"""Draw conversations for people to label, with known probabilities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from convbench.errors import RunError
from convbench.judges.gold.labels import (
    GoldLabels,
    gold_of,
    judge_rubric,
    keep_draw,
    read_draws,
    run_family,
    utc_now,
)
from convbench.schema.gold import DrawnConversation, GoldDraw
from convbench.stats.draw import (
    draw_probabilities,
    draw_systematic,
    expected_distances,
    sampling_sizes,
    variance_saved,
)
from convbench.stats.ppi import ScoredUnit, corrected_mean
from convbench.store import Run
from convbench.store.index import VerdictRow
from convbench.util.words import DrawBy, SplitChoice

OWN = "base"
"""Name of a run's own policy; its evaluations are named as their folders."""


@dataclass
class LabelUnit:
    """A unit of drawing: the conversations of all policies on one question and sample."""

    key: str
    group: str
    talks: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By policy: (conversation_id, the judge's score)."""

    @property
    def mean_score(self) -> float:
        """Mean score over its policies."""
        return sum(score for _, score in self.talks.values()) / len(self.talks)


def policies_by_name(run: Run) -> dict[str, Run]:
    """Return a run's policies by name, the run itself first: `base` is the run, each other name the
    folder of one of its evaluations."""
    return {OWN if not n else member.path.name: member for n, member in enumerate(run_family(run))}


def headline_score(verdict: VerdictRow, metric: str) -> float | None:
    """Return a verdict's score of this metric, else its reward; None if it has neither."""
    return verdict.scores.get(metric, verdict.reward)


def label_units(
    run: Run,
    judge: str,
    fingerprint: str,
    metric: str,
    split: SplitChoice,
    policies: Sequence[str] = (),
) -> list[LabelUnit]:
    """Return the units with a score of this judge in a split (`all` for any), sorted by key: one
    for each example, sample number and temperature, with the conversations of the policies.

    Only conversations that the judge scored are in them. Without `policies`
    all count. Raise RunError for an unknown policy.
    """
    known = policies_by_name(run)
    for name in policies:
        if name not in known:
            raise RunError(f"--policy {name}: found {', '.join(known)}; expected one of these")
    units: dict[str, LabelUnit] = {}
    for name, member in known.items():
        if policies and name not in policies:
            continue
        scores = {
            v.conversation_id: headline_score(v, metric)
            for v in member.verdict_rows()
            if v.judge == judge and v.fingerprint == fingerprint and v.scored
        }
        for talk in member.conversations():
            score, example = scores.get(talk.conversation_id), member.examples[talk.example_id]
            if score is None or split not in ("all", example.split):
                continue
            key = f"{talk.example_id}#{talk.sample}@{talk.temperature:g}"
            unit = units.setdefault(key, LabelUnit(key, example.group_id))
            unit.talks[name] = (talk.conversation_id, score)
    return [units[key] for key in sorted(units)]


def judge_to_correct(run: Run, judge: str | None) -> tuple[str, str]:
    """Return (name, fingerprint) of the judge to correct: the named one, or the only one that
    scored the run or its evaluations.

    Labels of people and reviews of the simulated human do not count. Raise RunError if there is
    none, or several and none is named.
    """
    scored_by: dict[str, str] = {}
    for member in run_family(run):
        aside = member.reviewer_fingerprints()
        scored_by |= {
            row.judge: row.fingerprint
            for row in member.verdict_rows()
            if row.scored and row.fingerprint not in aside
        }
    judges = {name: mark for name, mark in scored_by.items() if not name.startswith("human:")}
    if judge is not None and judge in judges:
        return judge, judges[judge]
    if judge is None and len(judges) == 1:
        return next(iter(judges.items()))
    known = ", ".join(judges) or "no judge"
    expected = "one of these" if judges else "a judged run; run: convbench judge"
    name = f"--judge {judge}" if judge else "verdicts"
    raise RunError(f"{run.path}: {name}: found {known}; expected {expected} with --judge")


LEAST = 10
"""Fewest labels for an optimal draw, which must know where people are far from the judge."""


@dataclass(frozen=True)
class DrawRequest:
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

    draw: GoldDraw
    policies: dict[str, int]
    """Number of conversations by policy."""
    known: int
    """Number of conversations that are labelled already."""


def draw_labels(run: Run, request: DrawRequest) -> DrawResult:
    """Draw units, each with every policy's conversation, append the draw to the run's file and
    return it with counts.

    The number of units is `request.count` divided by the most policies of a unit, rounded, at least
    1 and at most all. Raise RunError if nothing can be drawn, or an optimal draw has too few
    labels.
    """
    name, mark = judge_to_correct(run, request.judge)
    metric = judge_rubric(run, mark).headline_metric
    pool = label_units(run, name, mark, metric, request.split, request.policies)
    if not pool:
        raise RunError(
            f"{run.path}: found no conversation of split {request.split} that judge {name} scored; "
            "expected some: name another --split, or judge first"
        )
    width = max(len(unit.talks) for unit in pool)
    count = min(len(pool), max(1, round(request.count / width)))
    gold = gold_of(run, mark)
    seed = len(read_draws(run)) if request.seed is None else request.seed
    rng = random.Random(f"gold {seed}")
    scores = [unit.mean_score for unit in pool]
    apart = human_distances(pool, gold, metric) if request.by == "optimal" else None
    chances = draw_probabilities(sampling_sizes(request.by, scores, apart), count)
    taken = draw_systematic(chances, rng, scores if request.by == "stratified" else None)
    listed = [
        DrawnConversation(conversation_id=talk, chance=chances[i])
        for i in taken
        for talk, _ in rng.sample(list(pool[i].talks.values()), len(pool[i].talks))
    ]
    new_draw = GoldDraw(
        judge=name,
        fingerprint=mark,
        by=request.by,
        count=count,
        raters=request.raters,
        seed=seed,
        pool=len(pool),
        drawn=tuple(listed),
        made=utc_now(),
    )
    keep_draw(run, new_draw)
    by_policy: dict[str, int] = {}
    for i in taken:
        for policy in pool[i].talks:
            by_policy[policy] = by_policy.get(policy, 0) + 1
    known = sum(entry.conversation_id in gold.scores for entry in listed)
    return DrawResult(new_draw, by_policy, known)


def human_distances(pool: Sequence[LabelUnit], gold: GoldLabels, metric: str) -> list[float]:
    """Return the expected distance of people from the judge's tuned score, in points of the metric,
    for each unit in order.

    Raise RunError with fewer than 10 labels (`LEAST`), or labels in fewer than three groups.
    """
    units = _scored_units(pool, gold, metric)
    labelled = [unit for unit in units if unit.gold is not None]
    correction = corrected_mean(units)
    if len(labelled) < LEAST or correction is None:
        raise RunError(
            f"--by optimal: found {len(labelled)} labels; expected at least {LEAST} in 3 groups, "
            "to know where people disagree with the judge; label a uniform draw first"
        )
    rest = [(u.judge, u.gold - correction.power * u.judge) for u in labelled if u.gold is not None]
    middle = sum(r for _, r in rest) / len(rest)
    return expected_distances(
        [label_unit.mean_score for label_unit in pool], [(judge, r - middle) for judge, r in rest]
    )


def variance_saving(
    pool: Sequence[LabelUnit], gold: GoldLabels, metric: str, count: int
) -> float | None:
    """Return the share of variance, at most 1, that an optimal draw of `count` units saves over a
    uniform one; None with too few labels."""
    try:
        apart = human_distances(pool, gold, metric)
    except RunError:
        return None
    scores = [unit.mean_score for unit in pool]
    return variance_saved(
        draw_probabilities(sampling_sizes("optimal", scores, apart), min(count, len(pool))), apart
    )


def _scored_units(pool: Sequence[LabelUnit], gold: GoldLabels, metric: str) -> list[ScoredUnit]:
    """Return every conversation with the judge's score, people's, and its weight."""
    units = []
    for unit in pool:
        for talk, score in unit.talks.values():
            gold_score = gold.scores.get(talk, {}).get(metric)
            units.append(ScoredUnit(unit.group, score, gold_score, gold.weights.get(talk, 0.0)))
    return units
