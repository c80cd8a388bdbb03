"""Draw conversations for people to label, with known probabilities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from convbench.errors import RunError
from convbench.judges.gold.labels import (
    gold_of,
    keep_draw,
    read_draws,
    run_family,
    utc_now,
)
from convbench.schema.gold import DrawnConversation, GoldDraw
from convbench.store import Run
from convbench.util.words import SplitChoice

OWN = "base"
"""Name of a run's own policy; its evaluations are named as their folders."""


@dataclass
class LabelUnit:
    """A unit of drawing: the conversations of all policies on one question and sample."""

    key: str
    talks: dict[str, str] = field(default_factory=dict)
    """conversation_id by policy."""


def policies_by_name(run: Run) -> dict[str, Run]:
    """Return a run's policies by name, the run itself first: `base` is the run, each other name the
    folder of one of its evaluations."""
    return {OWN if not n else member.path.name: member for n, member in enumerate(run_family(run))}


def label_units(
    run: Run,
    judge: str,
    fingerprint: str,
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
        scored = {
            v.conversation_id
            for v in member.verdict_rows()
            if v.judge == judge and v.fingerprint == fingerprint and v.scored
        }
        for talk in member.conversations():
            here = split in ("all", member.examples[talk.example_id].split)
            if here and talk.conversation_id in scored:
                key = f"{talk.example_id}#{talk.sample}@{talk.temperature:g}"
                units.setdefault(key, LabelUnit(key)).talks[name] = talk.conversation_id
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


@dataclass(frozen=True)
class DrawRequest:
    """Options of a draw."""

    count: int
    """Number of conversations."""
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
    """Draw units with equal probability, each with every policy's conversation, append the draw to
    the run's file and return it with counts.

    The number of units is `request.count` divided by the most policies of a unit, rounded, at least
    1 and at most all. Raise RunError if nothing can be drawn.
    """
    name, mark = judge_to_correct(run, request.judge)
    pool = label_units(run, name, mark, request.split, request.policies)
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
    taken = rng.sample(pool, count)
    listed = [
        DrawnConversation(conversation_id=talk, chance=count / len(pool))
        for unit in taken
        for talk in rng.sample(list(unit.talks.values()), len(unit.talks))
    ]
    new_draw = GoldDraw(
        judge=name,
        fingerprint=mark,
        count=count,
        raters=request.raters,
        seed=seed,
        pool=len(pool),
        drawn=tuple(listed),
        made=utc_now(),
    )
    keep_draw(run, new_draw)
    by_policy: dict[str, int] = {}
    for unit in taken:
        for policy in unit.talks:
            by_policy[policy] = by_policy.get(policy, 0) + 1
    known = sum(entry.conversation_id in gold.scores for entry in listed)
    return DrawResult(new_draw, by_policy, known)
