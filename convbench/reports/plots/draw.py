"""Choose and draw the pictures of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convbench.reports.document import Document, Picture, ReportPart, slug
from convbench.reports.layout import judges_of
from convbench.reports.measures import ACCURACY
from convbench.reports.pairwise import flipped_pairs, section_tournaments, sibling_tournaments
from convbench.reports.plots.curves import (
    round_curves,
    size_curves,
    temperature_curves,
    training_curves,
    turn_curves,
)
from convbench.reports.plots.forgetting import draw_forgetting
from convbench.reports.plots.points import draw_dots, draw_judge_pairs, draw_radar, draw_strengths
from convbench.reports.plots.style import Page, drawing_style
from convbench.reports.sections import Section
from convbench.reports.tables import forgetting_sequences, headline_measure, measures_of
from convbench.stats.means import ErrorKind


def with_pictures(
    document: Document,
    sections: Sequence[Section],
    *,
    judge: str | None = None,
    kind: ErrorKind = "clustered",
    pairwise: bool = False,
    page: Page | None = None,
) -> Document:
    """Return the document with pictures drawn for `page`: those of the parts for each section and
    judge, and a last part `All together`.

    The last part has pictures that compare sections, judges and trainings; `pairwise` adds the
    strengths of policies. `document`, `sections` and `judge` must be those of `report_document`.
    Raise MissingDependency without matplotlib.
    """
    with drawing_style((policy.name for section in sections for policy in section.policies), page):
        titles = [(section, name) for section in sections for name in judges_of(section, judge)]
        parts = [
            replace(part, pictures=tuple(_part_pictures(section, name, kind)))
            for part, (section, name) in zip(document.parts, titles, strict=False)
        ]
        parts += document.parts[len(titles) :]  # parts that compare sections have only tables
        across = tuple(_comparison_pictures(sections, judge, kind))
        across += tuple(_strength_pictures(sections, judge)) if pairwise else ()
    together = (ReportPart("All together", pictures=across),) if across else ()
    return replace(document, parts=(*parts, *together))


def _strength_pictures(sections: Sequence[Section], judge: str | None) -> Iterator[Picture]:
    for section in sections:
        for tournament in section_tournaments(section):
            if judge in (None, tournament.judge):
                others = sibling_tournaments(tournament, section, sections)
                drawn = draw_strengths(
                    section.title, tournament, tuple(flipped_pairs(tournament, others).values())
                )
                if drawn is not None:
                    yield drawn


def _part_pictures(section: Section, judge: str | None, kind: ErrorKind) -> Iterator[Picture]:
    pictures = [draw_radar(section, judge, kind) if judge else None]
    pictures += [
        curve(section, judge, kind) for curve in (temperature_curves, size_curves, round_curves)
    ]
    yield from (item for item in pictures if item is not None)
    forgotten = forgetting_sequences(section, judge)
    if forgotten:
        yield draw_forgetting(forgotten, slug(f"forgetting {section.title} {judge}"))


def _comparison_pictures(
    sections: Sequence[Section],
    judge: str | None,
    kind: ErrorKind,
) -> Iterator[Picture]:
    names = dict.fromkeys(name for section in sections for name in judges_of(section, judge))
    overview = draw_dots(sections, ACCURACY, kind) or _reward_dots(
        sections, next(iter(names)), kind
    )
    if overview is not None:
        yield overview
    for name in names:
        yield from turn_curves(sections, name, kind)
    for section in sections:
        yield from draw_judge_pairs(section)
        curves = training_curves(section)
        if curves is not None:
            yield curves


def _reward_dots(sections: Sequence[Section], judge: str | None, kind: ErrorKind) -> Picture | None:
    """Return the picture of the judge's headline by task, for tasks without right answers."""
    measures = [m for section in sections for m in measures_of(section, judge)]
    top = headline_measure(measures)
    return draw_dots(sections, top, kind) if top is not None else None
