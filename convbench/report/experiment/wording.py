"""Figure 1 of the paper's first version, and its comparison across sets (appendix E.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convbench.errors import ConvbenchError
from convbench.report.document import Cell, Column, Part, Table, slug
from convbench.report.naming import plain_name
from convbench.report.patterns.analysis import patterns
from convbench.report.patterns.present import patterns_document
from convbench.report.patterns.responses import responses_of
from convbench.report.patterns.spread import Spread, spread
from convbench.report.policies import BASE, NAMES, Policy
from convbench.report.published import ALSO
from convbench.report.sections import Section

SHOWN = ("arc", "sciqa")
"""The sets of Figure 1 (a) and (b)."""
LEARNT = NAMES["swift"]
TITLE = "Figure 1: language patterns of Base and SWiFt"


def wording_parts(sections: Sequence[Section]) -> list[Part]:
    """Return a part for each set of the figure, and one that compares them; nothing where no
    section is of these sets. What cannot be drawn is said in its place."""
    chosen = [one for task in SHOWN if (one := _chosen(sections, task)) is not None]
    parts, found = [], {}
    for place, section in zip("ab", chosen, strict=False):
        part, measured = _part(section, f"{TITLE} ({place}), {section.task} · {section.mode}")
        parts.append(part)
        if measured is not None:
            found[f"{section.task} · {section.mode}"] = measured
    if chosen and len(found) == len(SHOWN):
        parts.append(Part("Across sets (appendix E.3)", tables=(across(found),)))
    elif chosen:
        fact = f"Missing: E.3 compares {' and '.join(SHOWN)}; {len(found)} of them can be measured."
        parts.append(Part("Across sets (appendix E.3)", (fact,)))
    return parts


def _chosen(sections: Sequence[Section], task: str) -> Section | None:
    """Return the section that stands for a set: reasoning in the thinking mode, then others."""
    found = [s for s in sections if ALSO.get(s.task, s.task) == task]
    found.sort(key=lambda s: (s.protocol != "reasoning", s.mode != "thinking", s.turns, s.task))
    return next((s for s in found if len(_two(s)) == 2), next(iter(found), None))


def _two(section: Section) -> list[Policy]:
    """Return Base and SWiFt, trained on all rows, where they are there."""
    wanted = {BASE: section.base}
    wanted[LEARNT] = next(
        (
            policy
            for policy in section.policies
            if plain_name(policy) == LEARNT and not (policy.recipe.get("data") or {}).get("rows")
        ),
        None,
    )
    return [replace(policy, name=name) for name, policy in wanted.items() if policy is not None]


def _part(section: Section, title: str) -> tuple[Part, Spread | None]:
    policies = _two(section)
    if len(policies) < 2:
        return Part(title, ("Missing: Base and SWiFt are not both here.",)), None
    try:
        found = patterns(responses_of(policies))
        made = patterns_document(found, title).parts[0]
    except ConvbenchError as error:
        return Part(title, (f"Missing: {error}",)), None
    facts = (f"Regime {section.regime}.", *made.facts)
    pictures = tuple(replace(p, name=slug(f"patterns {section.title}")) for p in made.pictures)
    return replace(made, facts=facts, pictures=pictures), spread(found)


def across(found: dict[str, Spread]) -> Table:
    """Return what the appendix reads off the two pictures, as numbers: a line a set."""
    columns = (
        Column("Set", "Set", numeric=False), Column("responses", "n"),
        Column("distance", "dist."), Column("distance, Base", "Base"),
        Column("distance, SWiFt", "SWiFt"), Column("separation", "sep."),
        Column("largest pattern (%)", "largest"), Column("effective patterns", "eff."),
        Column("outliers (%)", "outl."),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(name), Cell(str(one.responses)), _number(one.distance),
            _number(one.by_policy.get(BASE)), _number(one.by_policy.get(LEARNT)),
            _number(one.separation, sign="+"), _number(100 * one.first, 1),
            _number(one.patterns, 2), _number(_percent(one.outliers), 1),
        )
        for name, one in found.items()
    )  # fmt: skip
    notes = (
        "distance: mean 1 - cosine of the uncommon words' TF-IDF between two responses, of all and "
        "within a policy (1. cluster density; E.4: diversity). separation: share of the 15 nearest "
        "neighbours of the same policy less what chance gives (2. separation of the models). "
        "largest pattern, effective patterns: share of pattern 0, and exp(entropy) of the shares "
        "(3. use of patterns). outliers: responses whose nearest neighbour lies above the third "
        "quartile by more than 1.5 interquartile ranges (4. outliers).",
        "Printed, in words alone: ARC's responses are more dispersed than SciQA's, its policies "
        "less apart, its minor patterns used more evenly; pattern 0 is the largest in both; SWiFt "
        "is more varied than Base in both.",
    )
    return Table("Across sets", columns, rows, notes, "across-sets")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _number(value: float | None, digits: int = 3, sign: str = "") -> Cell:
    return Cell("-" if value is None else f"{value:{sign}.{digits}f}")
