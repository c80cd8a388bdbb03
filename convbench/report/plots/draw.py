"""Choose and draw the pictures of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convbench.report.document import Document, Part, Picture
from convbench.report.layout import judges_of
from convbench.report.measures import ACCURACY
from convbench.report.pairwise import beside, flips, tournaments
from convbench.report.plots.lines import by_rounds, by_size, by_temperature, by_turns, training
from convbench.report.plots.points import dots, judge_pairs, radar, strengths
from convbench.report.plots.style import Page, drawing
from convbench.report.sections import Section
from convbench.report.tables import headline, measures_of
from convbench.stats.means import ErrorKind


def with_pictures(
    made: Document,
    sections: Sequence[Section],
    *,
    judge: str | None = None,
    kind: ErrorKind | None = None,
    pairwise: bool = False,
    page: Page | None = None,
) -> Document:
    """Return the document with pictures drawn for `page`: each part's own, and a last part with
    those that compare parts. Raises MissingDependency without matplotlib."""
    with drawing((policy.name for section in sections for policy in section.policies), page):
        titles = [(section, name) for section in sections for name in judges_of(section, judge)]
        parts = [
            replace(part, pictures=tuple(_of_part(section, name, section.errors(kind))))
            for part, (section, name) in zip(made.parts, titles, strict=False)
        ]
        parts += made.parts[len(titles) :]  # parts that compare sections have only tables
        across = tuple(_across(sections, judge, kind))
        across += tuple(_strengths(sections, judge)) if pairwise else ()
    together = (Part("All together", pictures=across),) if across else ()
    return replace(made, parts=(*parts, *together))


def _strengths(sections: Sequence[Section], judge: str | None) -> Iterator[Picture]:
    for section in sections:
        for found in tournaments(section):
            if judge in (None, found.judge):
                others = beside(found, section, sections)
                drawn = strengths(section.title, found, tuple(flips(found, others).values()))
                if drawn is not None:
                    yield drawn


def _of_part(section: Section, judge: str | None, kind: ErrorKind) -> Iterator[Picture]:
    found = [radar(section, judge, kind) if judge else None]
    found += [curve(section, judge, kind) for curve in (by_temperature, by_size, by_rounds)]
    yield from (item for item in found if item is not None)


def _across(
    sections: Sequence[Section],
    judge: str | None,
    kind: ErrorKind | None,
) -> Iterator[Picture]:
    names = dict.fromkeys(name for section in sections for name in judges_of(section, judge))
    found = dots(sections, ACCURACY, kind) or _rewards(sections, next(iter(names)), kind)
    if found is not None:
        yield found
    for name in names:
        yield from by_turns(sections, name, kind)
    for section in sections:
        yield from judge_pairs(section)
        curves = training(section)
        if curves is not None:
            yield curves


def _rewards(
    sections: Sequence[Section], judge: str | None, kind: ErrorKind | None
) -> Picture | None:
    """Return the picture of the judge's headline by task, for tasks without right answers."""
    measures = [m for section in sections for m in measures_of(section, judge)]
    top = headline(measures)
    return dots(sections, top, kind) if top is not None else None
