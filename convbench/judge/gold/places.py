"""What can be drawn: places (a question, its sample and temperature) with each policy's
conversation there and what the judge said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from convbench.errors import RunError
from convbench.judge.gold.records import family
from convbench.store import Run
from convbench.store.index import VerdictRow
from convbench.words import SplitChoice

OWN = "base"
"""Name of a run's own policy; its evaluations are named as their folders."""


@dataclass
class Place:
    """One place."""

    key: str
    group: str
    talks: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By policy: conversation_id, and the judge's score."""

    @property
    def score(self) -> float:
        """Mean score over its policies."""
        return sum(score for _, score in self.talks.values()) / len(self.talks)


def named(run: Run) -> dict[str, Run]:
    """Return a run's policies by name."""
    return {OWN if not n else one.path.name: one for n, one in enumerate(family(run))}


def headline(verdict: VerdictRow, metric: str) -> float | None:
    """Return what a verdict says under the metric that pays, or its reward where it has none."""
    return verdict.scores.get(metric, verdict.reward)


def places(
    run: Run,
    judge: str,
    fingerprint: str,
    metric: str,
    split: SplitChoice,
    policies: Sequence[str] = (),
) -> list[Place]:
    """Return the places that this judge scored, those of several policies first to last by key.

    Raises RunError for a policy that is not there.
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
    """Return (name, fingerprint) of the judge whose scores are to be corrected: the one named, or
    the only one. Raises RunError where there is none, or no choice was made."""
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
