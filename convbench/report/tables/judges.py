"""Tables of judges: agreement and biases, pairwise comparisons of policies, and controls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convbench.judge.controls import Told, tried, unfit
from convbench.report.document import Cell, Column, Table
from convbench.report.judges import PanelOf
from convbench.report.pairwise import Meeting, Tournament, flips
from convbench.report.sections import Section
from convbench.report.tables.cells import (
    NONE,
    decimal,
    figure,
    p_text,
    percent,
    span_cell,
    with_interval,
)
from convbench.stats.bradley_terry import Bound, odds
from convbench.stats.means import Estimate, holm, share_interval

FEW = 40
"""Number of labels below which a note warns."""


def panel_tables(found: PanelOf) -> Iterator[Table]:
    """Yield the tables of agreement, of the panel's effective votes and of biases, if they have
    rows."""
    if found.agreed:
        yield _agreement(found)
    if found.votes is not None:
        yield _worth(found)
    if any(one.length or one.own or one.first for one in found.moved):
        yield _moved(found)


def _agreement(found: PanelOf) -> Table:
    rows = [
        (
            Cell(f"{one.first} / {one.second}"),
            Cell(str(one.common)),
            decimal(one.equal, 2),
            decimal(one.kappa, 2),
            decimal(one.correlation, 2),
            *with_interval(one.apart, 3),
        )
        for one in found.agreed
    ]
    columns = (
        Column("Judges", "Judges", numeric=False),
        Column("common", "common"),
        Column("equal", "equal"),
        Column("kappa", "kappa"),
        Column("Spearman", "Spearm."),
        Column("first − second", "1st−2nd"),
        Column("95% interval", "95%"),
    )
    notes = [
        "Each judge's headline score, brought to 0 to 1 by its own scale, on the conversations "
        "that both scored, of all methods; kappa is quadratically weighted."
    ]
    if found.alpha is not None:
        notes.append(f"Ordinal Krippendorff alpha over all: {found.alpha:.2f}.")
    return Table("Agreement of judges", columns, tuple(rows), tuple(notes), "agreement")


def _worth(found: PanelOf) -> Table:
    worth = found.votes
    assert worth is not None
    sign = "" if found.by_people else "at least "
    ends = NONE if worth.low is None else Cell(f"[{worth.low:.2f}, {worth.high:.2f}]")
    row = (
        Cell(f"{worth.judges} judges"),
        decimal(worth.correlation, 2, sign="+"),
        Cell(f"{sign}{worth.votes:.2f}"),
        ends,
        Cell(str(worth.conversations)),
        Cell(str(worth.groups)),
    )
    columns = (
        Column("Panel", "Panel", numeric=False),
        Column("mean correlation", "corr."),
        Column("independent votes", "votes"),
        Column("95% interval", "95%"),
        Column("conversations", "talks"),
        Column("groups", "groups"),
    )
    note = "Kish's effective number k / (1 + (k − 1) r), r the mean correlation of two judges' "
    if found.by_people:
        note += f"errors against people's scores of {found.labelled} conversations."
    else:
        note += (
            "scores: nobody labelled these, and what is true of a conversation makes scores "
            "correlate too, so that this is a lower bound."
        )
    notes = [note]
    if found.by_people and found.labelled < FEW:
        notes.append(f"Fewer than {FEW} labels: read the interval as too narrow.")
    return Table("Worth of the panel", columns, (row,), tuple(notes), "votes")


def _moved(found: PanelOf) -> Table:
    rows = [
        (
            Cell(one.judge),
            Cell(one.against),
            Cell(str(one.n)),
            *with_interval(one.length, 3),
            *with_interval(one.own, 3),
            *with_interval(one.first, 3, sign=""),
        )
        for one in found.moved
    ]
    columns = (
        Column("Judge", "Judge", numeric=False),
        Column("against", "against", numeric=False),
        Column("conversations", "talks"),
        Column("twice as long", "2x long"),
        Column("95% interval", "95%"),
        Column("own family", "own"),
        Column("95% interval", "95%"),
        Column("shown first", "first"),
        Column("95% interval", "95%"),
    )
    notes = (
        "How a judge's headline (0 to 1), less what it is held against, moves where a conversation "
        "has twice as many words, and between its own model family's policies and others'; "
        "clustered by group (jackknife). Against other judges it shows how this one differs from "
        "them; against nothing a length may simply be worth it. Shown first: how far it prefers "
        "the first of two (judge --pairwise), 0.5 being no bias.",
    )
    return Table("What moves a judge", columns, tuple(rows), notes, "moved")


def meeting_table(found: Tournament, others: Sequence[tuple[str, Tournament]] = ()) -> Table:
    """Return the table of win rates of every two policies that met, with flips and first-position
    bias. `others` are (simulated human, tournament) of the same judge with other simulated humans;
    a pair that wins with one and loses with another shows "flips" instead of p."""
    flipped = flips(found, others)
    tested = [_against_half(m.wins.rate) for m in found.meetings]
    adjusted = holm(
        [None if m.decision else p for m, p in zip(found.meetings, tested, strict=True)]
    )
    rows = []
    for meeting, p in zip(found.meetings, adjusted, strict=True):
        total = meeting.wins
        rows.append(
            (
                Cell(f"{meeting.one.name} over {meeting.other.name}"),
                _rate(meeting, p),
                _interval(meeting),
                _p(p, flips=_names(meeting) in flipped),
                Cell(str(total.wins)),
                Cell(str(total.ties)),
                Cell(str(total.losses)),
                percent(total.flips, share_interval(total.flips)),
                percent(total.first, total.first.interval),
                Cell(str(total.rate.n)),
                Cell(str(total.rate.groups)),
            )
        )
    columns = (
        Column("Policies", "Policies", numeric=False),
        Column("win rate", "rate"),
        Column("95% interval", "95%"),
        Column("p (Holm)", "p Holm"),
        Column("wins", "W"),
        Column("ties", "T"),
        Column("losses", "L"),
        Column("flips (%)", "flip %"),
        Column("first (%)", "1st %"),
        Column("duels", "duels"),
        Column("groups", "groups"),
    )
    notes = (*_notes(found), *(f"{why}." for why in flipped.values()))
    return Table("Pairwise", columns, tuple(rows), notes, "pairwise")


def strength_table(found: Tournament) -> Table | None:
    """Return the table of the policies' strengths in log odds against the first; None if they are
    not finite."""
    plain, level = found.ranking(), found.ranking(length=True)
    if plain is None:
        return None
    rows = []
    for place, policy in enumerate(found.policies):
        cells = [Cell(policy.name)]
        for ranking in (plain, level):
            bound = None if ranking is None else ranking.strengths[place]
            cells += _bound(bound, reference=place == 0)
        rows.append(tuple(cells))
    columns = (
        Column("Policy", "Policy", numeric=False),
        Column("log odds", "log odds"),
        Column("95%, all at once", "95%"),
        Column("beats it", "beats"),
        Column("log odds at equal length", "= length"),
        Column("95%, all at once", "95%"),
        Column("beats it", "beats"),
    )
    first = found.policies[0].name
    notes = [
        f"Bradley-Terry strengths against {first}, {plain.rounds} duels, resampled by group "
        f"({plain.groups}); the intervals of a column hold together. Beats: how often it wins "
        f"against {first}."
    ]
    if found.decided:
        notes.append(
            "No intervals: the judge was asked until it was decided, and one of duels that were "
            "counted beforehand would not hold."
        )
    if level is not None and level.length is not None:
        length = level.length
        ends = "" if length.low is None else f" [{length.low:+.2f}, {length.high:+.2f}]"
        notes.append(f"Log odds of an answer of twice as many words: {length.value:+.2f}{ends}.")
    else:
        notes.append("Lengths do not tell these policies apart, or too few duels do.")
    return Table("Strengths", columns, tuple(rows), tuple(notes), "strengths")


def _names(meeting: Meeting) -> tuple[str, str]:
    return meeting.one.name, meeting.other.name


def _p(p: float | None, *, flips: bool) -> Cell:
    return Cell("flips" if flips else p_text(p))


def _rate(meeting: Meeting, p: float | None) -> Cell:
    if meeting.decision is not None:
        return decimal(meeting.rate, 3, span=meeting.interval)
    return Cell(f"{meeting.rate:.3f}", figure=figure(meeting.wins.rate, p=p))


def _interval(meeting: Meeting) -> Cell:
    ends = meeting.interval
    return span_cell(ends and (max(ends[0], 0), min(ends[1], 1)), 3)


def _against_half(rate: Estimate) -> float | None:
    """Return the two-sided p of the hypothesis that the win rate is one half."""
    moved = Estimate(rate.mean - 0.5, rate.error, rate.n, rate.groups, rate.df)
    return moved.p


def _bound(bound: Bound | None, *, reference: bool) -> list[Cell]:
    if bound is None:
        return [NONE, NONE, NONE]
    if reference:
        return [Cell("0"), NONE, NONE]
    ends = None if bound.low is None or bound.high is None else (bound.low, bound.high)
    return [
        decimal(bound.value, 2, sign="+", span=ends),
        span_cell(ends, 2, "+"),
        decimal(odds(bound.value), 3),
    ]


def _notes(found: Tournament) -> list[str]:
    notes = [
        f"Judge {found.judge}: conversations about the same question with the same sample, each "
        "couple in both orders; a tie is half a win. Intervals are clustered by group (Student's "
        "t). Flips: duels whose winner the order chose (interval of its log odds). First: how far "
        "what is shown first is preferred; 50 where the place does not count."
    ]
    if found.decided:
        notes.append(
            "Where the judge was asked until decided, the rate is over groups and the interval "
            "holds at all times at once, however often it was looked at; it has no p."
        )
    if found.failed:
        notes.append(f"{found.failed} orders got no preference; their duels are left out.")
    if found.mixed:
        notes.append("Comparisons by an older rubric or model of this judge are left out.")
    flat = [m for m in found.meetings if m.decision is None and m.wins.rate.error == 0]
    if flat:
        notes.append("An interval of no width says that all agree, not that the rate is certain.")
    return notes


def controls_of(section: Section, judge: str) -> dict[str, list[Told]]:
    """Return the results of a judge's controls by policy; only policies with controls."""
    found = {}
    for policy in section.policies:
        for mark in policy.fingerprints(judge)[:1]:
            if told := tried(policy.run, judge, mark):
                found[policy.name] = told
    return found


def control_table(section: Section, judge: str | None) -> Table | None:
    """Return the table of controls next to the policy's own conversations about the same examples;
    None if no controls were run."""
    found = controls_of(section, judge) if judge is not None else {}
    if not found:
        return None
    columns = (
        Column("Method", "Method", numeric=False),
        Column("Control", "Control", numeric=False),
        Column("score", "score"),
        Column("policy's own", "own"),
        Column("examples", "n"),
        Column("no score", "none"),
        Column("", "", numeric=False),
    )
    rows = tuple(_row(name, one) for name, told in found.items() for one in told)
    sentences = [text for told in found.values() for text in unfit(told, judge or "")]
    notes = tuple(f"{text[0].upper()}{text[1:]}." for text in sentences) or (
        "No control is paid more than the policy's own answers to the same questions.",
    )
    return Table("Controls: answers that deserve nothing", columns, rows, notes, "controls")


def _row(name: str, one: Told) -> tuple[Cell, ...]:
    scores = (decimal(one.score, 2), decimal(one.own, 2)) if one.examples else (NONE, NONE)
    return (
        Cell(name),
        Cell(one.control),
        *scores,
        Cell(str(one.examples)),
        Cell(str(one.failed)),
        Cell("above" if one.above else ""),
    )
