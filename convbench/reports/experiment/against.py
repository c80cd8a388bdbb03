"""Compare an experiment with another one: the paired difference of each policy to the policy of the
same name there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convbench.reports.compare import policy_differences
from convbench.reports.document import ReportPart, Table
from convbench.reports.measures import ACCURACY, Measure, PairedDifference, paired_differences
from convbench.reports.policies import Observation, Policy, judge_spec
from convbench.reports.sections import Section
from convbench.reports.tables import headline_measure, measures_of, paired_table
from convbench.stats.means import ErrorKind, holm_adjusted

SHOWN = 6
"""Most differences of settings that are listed for a section."""


def against_part(
    sections: Sequence[Section], others: Sequence[Section], name: str, kind: ErrorKind = "clustered"
) -> ReportPart:
    """Return the part with our paired differences to another experiment, a table for each section
    and judge.

    Sections correspond if task, mode, protocol and turns are equal. `name` is the other
    experiment's in heads and titles; `kind` the kind of standard errors. How
    the settings differ, and what has no counterpart or no common questions, is in the notes.
    """
    by_setting = {_setting_key(section): section for section in others}
    tables: list[Table] = []
    notes: list[str] = []
    for section in sections:
        other = by_setting.get(_setting_key(section))
        if other is None:
            notes.append(f"{section.title}: {name} has no such runs.")
            continue
        compared = list(_section_tables(section, other, name, kind))
        tables += compared
        if not compared:
            notes.append(f"{section.title}: no policy of both has a question in common.")
        notes += _setting_notes(section, other, name)
    return ReportPart(f"Against {name}", tables=tuple(tables), notes=tuple(notes))


def _setting_key(section: Section) -> tuple[str, str, str, int, str]:
    return section.task, section.mode, section.protocol, section.turns, section.simulator


def _section_tables(
    section: Section, other: Section, name: str, kind: ErrorKind
) -> Iterator[Table]:
    """Yield a table for each judge that both have, or one without a judge."""
    pairs = [
        (mine, theirs)
        for mine in section.policies
        for theirs in other.policies
        if mine.name == theirs.name
    ]
    aligned = [_align_units(mine, theirs, name) for mine, theirs in pairs]
    judges: list[str | None] = [judge for judge in section.judges if judge in other.judges]
    for judge in judges or [None]:
        spec = judge_spec(section.policies, judge)
        within = spec is not None and spec.is_relative  # its scores say nothing between policies
        top = None if within else headline_measure(measures_of(section, judge))
        compared = [
            (measure, differences)
            for measure in (ACCURACY, top)
            if measure is not None
            and (differences := _namesake_differences(section, aligned, measure, kind))
            and any(difference.n for difference in differences)
        ]
        if compared:
            table = paired_table(compared, name, kind)
            by = f", judge {judge}" if judge else ""
            yield replace(table, caption=f"{section.title}{by}: differences to {name}, paired")


def _align_units(mine: Policy, theirs: Policy, name: str) -> tuple[Policy, Policy]:
    """Return both policies with the conversations about equal questions of the same seed, keyed
    alike; the other one is renamed."""
    first, second = (
        {member.run.manifest.seed: member for member in policy.run_policies}
        for policy in (mine, theirs)
    )
    seeds = [seed for seed in first if seed in second]

    def common_rows(own: dict[int, Policy], other: dict[int, Policy]) -> tuple[Observation, ...]:
        return tuple(
            row._replace(unit=f"{seed}/{row.unit}")
            for seed in seeds
            for row in own[seed].observations
            if _question_of(own[seed], row) == _question_of(other[seed], row)
        )

    return (
        replace(mine, observations=common_rows(first, second)),
        replace(theirs, observations=common_rows(second, first), name=f"{theirs.name} of {name}"),
    )


def _question_of(policy: Policy, row: Observation) -> object:
    return policy.run.examples.get(row.unit.rpartition("#")[0])


def _namesake_differences(
    section: Section,
    aligned: Sequence[tuple[Policy, Policy]],
    measure: Measure,
    kind: ErrorKind,
) -> list[PairedDifference]:
    """Return each policy's difference to its counterpart, with p by Holm over the policies."""
    differences = [
        paired_differences(
            replace(section, policies=(theirs, mine), compared_with=theirs.name), measure, kind
        )[0]
        for mine, theirs in aligned
    ]
    adjusted = holm_adjusted([item.estimate.p if item.estimate else None for item in differences])
    return [replace(item, adjusted=p) for item, p in zip(differences, adjusted, strict=True)]


def _setting_notes(section: Section, other: Section, name: str) -> Iterator[str]:
    """Yield how the settings of the two differ, and which policies only one has."""
    mine, theirs = ({policy.name: policy for policy in s.policies} for s in (section, other))
    both = next((policy for policy in mine if policy in theirs), None)
    if both is not None:
        differences = policy_differences(theirs[both], mine[both])
        more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
        listed = [*differences[:SHOWN], *more]
        models = theirs[both].model, mine[both].model
        listed += [f"model: {models[0]} → {models[1]}"] if models[0] != models[1] else []
        if listed:
            yield f"{section.title}, {name} → here: {'; '.join(listed)}."
    for names, where in ((mine.keys() - theirs, "here"), (theirs.keys() - mine, f"in {name}")):
        if names:
            yield f"{section.title}, only {where}: {', '.join(sorted(names))}."
