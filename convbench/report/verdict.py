"""The verdict on each trained policy of a section, with its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from convbench.judge.controls import tried, unfit
from convbench.report.deciding import WINS, Decided, Evidence, Measured, decide
from convbench.report.gold import both, compare, gold_for
from convbench.report.measures import ACCURACY
from convbench.report.moved import Phrase, StylePair, drifts, phrase, style_pairs, texts
from convbench.report.paired import pairs
from convbench.report.policies import Policy, judge_spec
from convbench.report.rows import Observation
from convbench.report.sections import Section
from convbench.report.simulators import flipped
from convbench.report.style_control import style_control
from convbench.schema import JudgeSpec
from convbench.stats.covariates import drift, drift_apart
from convbench.stats.means import Estimate, estimate
from convbench.stats.ppi import Transport

Scores = tuple[str, str, float, float]
"""Group, place, Base's score and the policy's."""


@dataclass(frozen=True)
class Verdicted:
    """One trained policy: the word, why, and all that was looked at."""

    policy: str
    judge: str
    """The judge that trained it."""
    decided: Decided
    evidence: Evidence
    check: Transport | None
    """Whether the labels of one policy hold for the other, where that was asked."""
    drifts: Mapping[str, Estimate] = field(default_factory=dict)
    phrase: Phrase | None = None
    alike: tuple[str, ...] = ()
    """Other judges of the same family, which are no second opinion."""
    unfit: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Other judges that controls found unfit, which are no truth, with why."""


def verdicts(
    section: Section, judge: str | None = None, beside: Sequence[Section] = ()
) -> Iterator[Verdicted]:
    """Yield the verdict on every policy but Base; nothing without Base. `judge` is the one that
    trained where the checkpoint does not say. What the sections `beside`, of other simulated
    humans, rank the other way is not real."""
    base = section.base
    if base is None:
        return
    for policy in section.policies:
        if policy is not base:
            name = trained_by(policy) or judge or next(iter(section.judges), None)
            if name is not None and name in section.judges:
                found = verdict(base, policy, name, section.judges)
                flips = flipped(section, beside, policy.name, name)
                yield found if flips is None else _unless_real(found, flips)


def _unless_real(found: Verdicted, flips: str) -> Verdicted:
    if found.decided.word not in WINS:
        return found
    return replace(found, decided=Decided("undecided", f"{found.decided.why}; but {flips}"))


def trained_by(policy: Policy) -> str | None:
    """Return the judge whose reward trained a policy; None where that is not known."""
    found = policy.training.get("judge") or (policy.recipe.get("data") or {}).get("judge")
    return str(found) if found else None


def verdict(base: Policy, policy: Policy, judge: str, judges: tuple[str, ...]) -> Verdicted:
    """Return the verdict on a policy that this judge trained."""
    spec = judge_spec((base, policy), judge)
    metric = spec.headline if spec is not None else "overall"
    gain = _gain(base, policy, judge, metric)
    truths: list[Measured] = []
    gold = {p.name: gold_for(p, judge) for p in (base, policy)}
    check = None
    if any(one.drawn for one in gold.values()):
        a, b = both(base, policy, judge, gold, metric)
        found = compare(policy.name, a, b, _width(spec, metric))
        check = found.check
        usable = check is None or check.passed == "PASS"
        if usable and found.corrected is not None and found.raw is not None:
            truths.append(
                Measured("people's score", found.corrected, found.bias, found.raw.mean, people=True)
            )
    before, after = texts(base), texts(policy)
    style = style_pairs(base, policy, before, after)
    own, alike, poor = family(spec, judge), [], {}
    for other in judges:
        if other == judge:
            continue
        theirs = judge_spec((base, policy), other)
        if family(theirs, other) == own:
            alike.append(other)
            continue
        if whys := _unfit(base, other):
            poor[other] = whys
            continue
        head = theirs.headline if theirs is not None else "overall"
        one = second_opinion(other, _pairs(base, policy, judge, metric),
                             _pairs(base, policy, other, head), style)  # fmt: skip
        truths += [] if one is None else [one]
    right = estimate((row.group, b - a) for row, a, b in pairs(base, policy, ACCURACY))
    if right is not None:
        truths.append(Measured(ACCURACY.key, right, None, math.nan))
    evidence = Evidence(gain, tuple(truths), tuple(_unfit(base, judge)))
    scores = {row.talk: value for row in policy.rows
              if (value := score(row, judge, metric)) is not None}  # fmt: skip
    return Verdicted(
        policy.name, judge, decide(evidence), evidence, check, drifts(style.values()),
        phrase(before, after, scores), tuple(alike), poor,
    )  # fmt: skip


def _unfit(base: Policy, judge: str) -> list[str]:
    """Return why controls found a judge unfit."""
    marks = base.fingerprints(judge)
    return unfit(tried(base.run, judge, marks[0]), judge) if marks else []


def family(spec: JudgeSpec | None, judge: str) -> str:
    """Return what a judge is of: the maker of its model (`openai/gpt-4o` and
    `openai/gpt-4.1-mini`: gpt), its function, people, or itself."""
    if judge.startswith("human:"):
        return "people"
    if spec is None:
        return judge
    if spec.function:
        return spec.function.partition(":")[0]
    name = (spec.model or judge).rpartition("/")[2].lower()
    return name.lstrip("~").split("-")[0].rstrip("0123456789.") or name


def score(row: Observation, judge: str, metric: str) -> float | None:
    """Return what a judge said of one conversation under a metric, or its reward without one."""
    scored = row.verdicts.get(judge)
    return None if scored is None or scored.failed else scored.scores.get(metric, scored.reward)


def _gain(base: Policy, policy: Policy, judge: str, metric: str) -> Estimate | None:
    return estimate((g, b - a) for g, _, a, b in _pairs(base, policy, judge, metric))


def _pairs(base: Policy, policy: Policy, judge: str, metric: str) -> Iterator[Scores]:
    """Yield what a judge gave at each place that both policies have."""
    before = {row.unit: score(row, judge, metric) for row in base.rows}
    for row in policy.rows:
        a, b = before.get(row.unit), score(row, judge, metric)
        if a is not None and b is not None:
            yield row.group, row.unit, a, b


def second_opinion(
    name: str,
    first: Iterable[Scores],
    second: Iterable[Scores],
    style: Mapping[str, StylePair],
) -> Measured | None:
    """Return what another judge (`second`) says, at equal length and style too, with how much more
    the judge that trained (`first`) gained, each in Base's standard deviations."""
    theirs = {place: (group, a, b) for group, place, a, b in second}
    gain = estimate((group, b - a) for group, a, b in theirs.values())
    if gain is None:
        return None
    both = {place: (group, a, b) for group, place, a, b in first if place in theirs}
    apart = drift_apart((*both[place], *theirs[place][1:]) for place in both)
    whole = drift(both.values())
    known = apart is not None and whole is not None
    control = style_control(((g, place, a, b) for place, (g, a, b) in theirs.items()), style)
    return Measured(
        f"judge {name}",
        gain,
        apart if known else None,
        whole.mean if known and whole else math.nan,
        style=control,
    )


def _width(spec: JudgeSpec | None, metric: str) -> float:
    if spec is None:
        return 1.0
    low, high = spec.limits(metric)
    return high - low
