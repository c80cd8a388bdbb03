"""The paper's figure of language patterns across sets, and the table that compares the sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convbench.errors import ConvbenchError
from convbench.reports.document import Cell, Column, ReportPart, Table, slug
from convbench.reports.patterns.analysis import (
    Spread,
    analyse_patterns,
    measure_spread,
    responses_of,
)
from convbench.reports.patterns.patterns import patterns_document
from convbench.reports.policies import BASE, NAMES, Policy, plain_name
from convbench.reports.published import (
    ALSO,
)
from convbench.reports.sections import Section

SHOWN = ("arc", "sciqa")
"""The tasks of Figure 1 (a) and (b)."""
LEARNT = NAMES["swift"]
TITLE = "Figure 1: language patterns of Base and SWiFt"


def pattern_parts(sections: Sequence[Section]) -> list[ReportPart]:
    """Return a part for each of the tasks `arc` and `sciqa` that has a section, and a last part
    that compares the two.

    Empty if neither has one. A part that cannot be computed, and a comparison that lacks a task,
    has a line that says what is missing.
    """
    chosen = [
        candidate for task in SHOWN if (candidate := _set_section(sections, task)) is not None
    ]
    parts, spreads = [], {}
    for letter, section in zip("ab", chosen, strict=False):
        part, measured = _pattern_part(
            section, f"{TITLE} ({letter}), {section.task} · {section.mode}"
        )
        parts.append(part)
        if measured is not None:
            spreads[f"{section.task} · {section.mode}"] = measured
    if chosen and len(spreads) == len(SHOWN):
        parts.append(ReportPart("Across sets (appendix E.3)", tables=(spread_table(spreads),)))
    elif chosen:
        fact = (
            f"Missing: E.3 compares {' and '.join(SHOWN)}; {len(spreads)} of them can be measured."
        )
        parts.append(ReportPart("Across sets (appendix E.3)", (fact,)))
    return parts


def _set_section(sections: Sequence[Section], task: str) -> Section | None:
    """Return the section for a task of the figure, preferably reasoning in thinking mode; None if
    there is none. Sections with both policies come first."""
    candidates = [s for s in sections if ALSO.get(s.task, s.task) == task]
    candidates.sort(
        key=lambda s: (s.protocol != "reasoning", s.mode != "thinking", s.turns, s.task)
    )
    return next(
        (s for s in candidates if len(_base_and_swift(s)) == 2), next(iter(candidates), None)
    )


def _base_and_swift(section: Section) -> list[Policy]:
    """Return Base and SWiFt (trained on all rows) under these names, those that exist."""
    policies = {BASE: section.base}
    policies[LEARNT] = next(
        (
            policy
            for policy in section.policies
            if plain_name(policy) == LEARNT and not policy.recipe_data.get("rows")
        ),
        None,
    )
    return [replace(policy, name=name) for name, policy in policies.items() if policy is not None]


def _pattern_part(section: Section, title: str) -> tuple[ReportPart, Spread | None]:
    policies = _base_and_swift(section)
    if len(policies) < 2:
        return ReportPart(title, ("Missing: Base and SWiFt are not both here.",)), None
    try:
        analysis = analyse_patterns(responses_of(policies))
        part = patterns_document(analysis, title).parts[0]
    except ConvbenchError as error:
        return ReportPart(title, (f"Missing: {error}",)), None
    pictures = tuple(replace(p, name=slug(f"patterns {section.title}")) for p in part.pictures)
    return replace(part, pictures=pictures), measure_spread(analysis)


def spread_table(spreads: dict[str, Spread]) -> Table:
    """Return the table of measures of the responses' spread, a row for each item of `spreads` under
    its key.

    Missing values are `-`; shares are in percent.
    """
    columns = (
        Column("Set", "Set", numeric=False),
        Column("responses", "n"),
        Column("distance", "dist."),
        Column("distance, Base", "Base"),
        Column("distance, SWiFt", "SWiFt"),
        Column("separation", "sep."),
        Column("largest pattern (%)", "largest"),
        Column("effective patterns", "eff."),
        Column("outliers (%)", "outl."),
    )
    rows = tuple(
        (
            Cell(name),
            Cell(str(values.responses)),
            _number_cell(values.distance),
            _number_cell(values.by_policy.get(BASE)),
            _number_cell(values.by_policy.get(LEARNT)),
            _number_cell(values.separation, sign="+"),
            _number_cell(100 * values.largest_share, 1),
            _number_cell(values.effective_patterns, 2),
            _number_cell(_as_percent(values.outliers), 1),
        )
        for name, values in spreads.items()
    )
    notes = (
        "distance: mean 1 - cosine of the uncommon words' TF-IDF between two responses, of all and "
        "within a policy (1. cluster density; E.4: diversity). separation: share of the 15 nearest "
        "neighbours of the same policy less what chance gives (2. separation of the models). "
        "largest pattern, effective patterns: share of pattern 0, and exp(entropy) of the shares "
        "(3. use of patterns). outliers: responses whose nearest neighbour lies above the third "
        "quartile by more than 1.5 interquartile ranges (4. outliers).",
        "Printed, in words alone: ARC's responses are more dispersed than SciQA's, its policies "
        "less separated, its minor patterns used more evenly; pattern 0 is the largest in both; "
        "SWiFt is more varied than Base in both.",
    )
    return Table("Across sets", columns, rows, notes, "across-sets")


def _as_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _number_cell(value: float | None, digits: int = 3, sign: str = "") -> Cell:
    return Cell("-" if value is None else f"{value:{sign}.{digits}f}")
