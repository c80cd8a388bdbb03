"""Tables of judges: agreement and biases, pairwise comparisons of policies, and controls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from convbench.judges.controls import ControlResult, control_results, unfit_reasons
from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Table
from convbench.reports.judges import JudgePanel
from convbench.reports.measures import Measure, metric_measure, paired_values
from convbench.reports.pairwise import Meeting, Tournament, flipped_pairs
from convbench.reports.policies import Policy, judge_spec
from convbench.reports.sections import Section
from convbench.reports.tables.cells import (
    NONE,
    decimal_cell,
    estimate_figure,
    interval_cells,
    p_text,
    percent_cell,
    span_cell,
)
from convbench.stats.duels import IntervalEstimate
from convbench.stats.means import (
    ErrorKind,
    Estimate,
    estimate_mean,
    holm_adjusted,
    inverse_logit,
    share_interval,
)


def duel_points(first: Policy, second: Policy, score: Measure) -> list[tuple[str, float]]:
    """Return (group, points of the first policy) for every unit that both have a score for: 1 if
    its score is higher, a half for a tie, else 0."""
    return [
        (row.group, (ours > theirs) + 0.5 * (ours == theirs))
        for row, theirs, ours in paired_values(second, first, score)
    ]


def win_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of wins, ties, losses and win rates of every two policies, Base second.

    None unless the judge compares pages and scored two policies on the same task, sample and
    temperature.
    """
    spec = judge_spec(section.policies, judge)
    if judge is None or spec is None or kind_of(spec).measures != "pages":
        return None
    score = metric_measure(judge, "overall")
    rows = []
    ordered = sorted(section.policies, key=lambda policy: policy.is_base)  # Base last
    for first, second in combinations(ordered, 2):
        points = duel_points(first, second, score)
        rate = estimate_mean(points, kind)
        if rate is None:
            continue
        counts = [sum(point == value for _, point in points) for value in (1.0, 0.5, 0.0)]
        low, high = rate.interval or (None, None)
        rows.append(
            (
                Cell(f"{first.name} over {second.name}"),
                *(Cell(str(count)) for count in counts),
                Cell(f"{rate.mean:.3f}", figure=estimate_figure(rate)),
                NONE
                if low is None or high is None
                else Cell(f"[{max(low, 0):.3f}, {min(high, 1):.3f}]"),
                Cell(str(rate.n)),
                Cell(str(rate.groups)),
            )
        )
    if not rows:
        return None
    columns = (
        Column("Pages", "Pages", numeric=False),
        Column("wins", "wins"),
        Column("ties", "ties"),
        Column("losses", "losses"),
        Column("win rate", "rate"),
        Column("95% interval", "95%"),
        Column("pairs", "pairs"),
        Column("groups", "groups"),
    )
    unit = "group" if kind == "clustered" else "conversation"
    notes = [
        f"Which page judge {judge} finds closer to the reference, paired over conversations about "
        f"the same task with the same sample and temperature; a tie is half a win; Student's t "
        f"over each {unit}."
    ]
    if any(row[5].text in ("[0.000, 0.000]", "[1.000, 1.000]") for row in rows):
        notes.append("An interval of width 0 means that all agree, not that the rate is certain.")
    return Table("Win rates", columns, tuple(rows), tuple(notes), "wins")


FEW = 40
"""Number of labels below which a note warns."""


def panel_tables(panel: JudgePanel) -> Iterator[Table]:
    """Yield up to three tables: agreement of every two judges, the panel's effective votes, and the
    judges' biases. A table without rows is left out."""
    if panel.agreed:
        yield _agreement_table(panel)
    if panel.votes is not None:
        yield _worth_table(panel)
    if any(bias.length or bias.first for bias in panel.biases):
        yield _bias_table(panel)


def _agreement_table(panel: JudgePanel) -> Table:
    rows = [
        (
            Cell(f"{pair.first} / {pair.second}"),
            Cell(str(pair.common)),
            decimal_cell(pair.equal, 2),
            decimal_cell(pair.kappa, 2),
            decimal_cell(pair.correlation, 2),
            *interval_cells(pair.apart, 3),
        )
        for pair in panel.agreed
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
    if panel.alpha is not None:
        notes.append(f"Ordinal Krippendorff alpha over all: {panel.alpha:.2f}.")
    return Table("Agreement of judges", columns, tuple(rows), tuple(notes), "agreement")


def _worth_table(panel: JudgePanel) -> Table:
    worth = panel.votes
    assert worth is not None
    sign = "" if panel.by_people else "at least "
    ends = NONE if worth.low is None else Cell(f"[{worth.low:.2f}, {worth.high:.2f}]")
    row = (
        Cell(f"{worth.judges} judges"),
        decimal_cell(worth.correlation, 2, sign="+"),
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
    if panel.by_people:
        note += f"errors against people's scores of {panel.labelled} conversations."
    else:
        note += (
            "scores: without labels, the conversations' true quality correlates the scores too, "
            "so this is a lower bound."
        )
    notes = [note]
    if panel.by_people and panel.labelled < FEW:
        notes.append(f"Fewer than {FEW} labels: the interval is too narrow.")
    return Table("Effective votes of the panel", columns, (row,), tuple(notes), "votes")


def _bias_table(panel: JudgePanel) -> Table:
    rows = [
        (
            Cell(bias.judge),
            Cell(bias.against),
            Cell(str(bias.n)),
            *interval_cells(bias.length, 3),
            *interval_cells(bias.first, 3, sign=""),
        )
        for bias in panel.biases
    ]
    columns = (
        Column("Judge", "Judge", numeric=False),
        Column("against", "against", numeric=False),
        Column("conversations", "talks"),
        Column("twice as long", "2x long"),
        Column("95% interval", "95%"),
        Column("shown first", "first"),
        Column("95% interval", "95%"),
    )
    notes = (
        "How a judge's headline (0 to 1), minus its reference, changes for twice as many words; "
        "clustered by group (jackknife). Against other judges it shows how this one differs from "
        "them; without a reference, longer conversations may simply be better. Shown first: how "
        "far it prefers the first of two (judge --pairwise), 0.5 being no bias.",
    )
    return Table("Biases of judges", columns, tuple(rows), notes, "moved")


def meeting_table(tournament: Tournament, others: Sequence[tuple[str, Tournament]] = ()) -> Table:
    """Return the table of win rates of every two policies that met, with flips and first-position
    bias. `others` are (simulated human, tournament) of the same judge with other simulated humans;
    a pair that wins with one and loses with another shows "flips" instead of p."""
    flipped = flipped_pairs(tournament, others)
    tested = [_p_against_half(m.wins.rate) for m in tournament.meetings]
    adjusted = holm_adjusted(tested)
    rows = []
    for meeting, p in zip(tournament.meetings, adjusted, strict=True):
        total = meeting.wins
        rows.append(
            (
                Cell(f"{meeting.first.name} over {meeting.second.name}"),
                _rate_cell(meeting, p),
                _interval_cell(meeting),
                _p_cell(p, flips=_policy_names(meeting) in flipped),
                Cell(str(total.wins)),
                Cell(str(total.ties)),
                Cell(str(total.losses)),
                percent_cell(total.flips, share_interval(total.flips)),
                percent_cell(total.first, total.first.interval),
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
    notes = (*_pairwise_notes(tournament), *(f"{why}." for why in flipped.values()))
    return Table("Pairwise", columns, tuple(rows), notes, "pairwise")


def strength_table(tournament: Tournament) -> Table | None:
    """Return the table of the policies' Bradley-Terry strengths in log odds against the first, as
    judged and at equal length.

    None if the strengths are not finite.
    """
    unadjusted, level = tournament.strength_ranking(), tournament.strength_ranking(length=True)
    if unadjusted is None:
        return None
    rows = []
    for index, policy in enumerate(tournament.policies):
        cells = [Cell(policy.name)]
        for ranking in (unadjusted, level):
            bound = None if ranking is None else ranking.strengths[index]
            cells += _bound_cells(bound, reference=index == 0)
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
    first = tournament.policies[0].name
    notes = [
        f"Bradley-Terry strengths against {first}, {unadjusted.rounds} duels, resampled by group "
        f"({unadjusted.groups}); the intervals of a column are simultaneous. Beats: how often it "
        f"wins against {first}."
    ]
    if level is not None and level.length is not None:
        length = level.length
        ends = "" if length.low is None else f" [{length.low:+.2f}, {length.high:+.2f}]"
        notes.append(f"Log odds of an answer of twice as many words: {length.value:+.2f}{ends}.")
    else:
        notes.append(
            "No strengths at equal length: lengths do not differ, or there are too few duels."
        )
    return Table("Strengths", columns, tuple(rows), tuple(notes), "strengths")


def _policy_names(meeting: Meeting) -> tuple[str, str]:
    return meeting.first.name, meeting.second.name


def _p_cell(p: float | None, *, flips: bool) -> Cell:
    return Cell("flips" if flips else p_text(p))


def _rate_cell(meeting: Meeting, p: float | None) -> Cell:
    return Cell(f"{meeting.win_rate:.3f}", figure=estimate_figure(meeting.wins.rate, p=p))


def _interval_cell(meeting: Meeting) -> Cell:
    ends = meeting.interval
    return span_cell(ends and (max(ends[0], 0), min(ends[1], 1)), 3)


def _p_against_half(rate: Estimate) -> float | None:
    """Return the two-sided p of the hypothesis that the win rate is one half."""
    shifted = Estimate(rate.mean - 0.5, rate.error, rate.n, rate.groups, rate.df)
    return shifted.p


def _bound_cells(bound: IntervalEstimate | None, *, reference: bool) -> list[Cell]:
    if bound is None:
        return [NONE, NONE, NONE]
    if reference:
        return [Cell("0"), NONE, NONE]
    ends = None if bound.low is None or bound.high is None else (bound.low, bound.high)
    return [
        decimal_cell(bound.value, 2, sign="+", span=ends),
        span_cell(ends, 2, "+"),
        decimal_cell(inverse_logit(bound.value), 3),
    ]


def _pairwise_notes(tournament: Tournament) -> list[str]:
    notes = [
        f"Judge {tournament.judge}: conversations about the same question with the same sample, "
        "each "
        "pair in both orders; a tie is half a win. Intervals are clustered by group (Student's "
        "t). Flips: duels whose winner the order chose (interval of its log odds). First: how far "
        "what is shown first is preferred; 50 where the place does not count."
    ]
    if tournament.failed:
        notes.append(f"{tournament.failed} orders got no preference; their duels are omitted.")
    if tournament.mixed:
        notes.append("Comparisons by an older rubric or model of this judge are omitted.")
    if any(meeting.wins.rate.error == 0 for meeting in tournament.meetings):
        notes.append("An interval of width 0 means that all agree, not that the rate is certain.")
    return notes


def controls_of(section: Section, judge: str) -> dict[str, list[ControlResult]]:
    """Return the results of a judge's controls by policy name, for the first fingerprint of its
    verdicts; of a pooled policy, over the examples of all its runs.

    Policies without controls are left out; empty if there are none.
    """
    by_policy = {}
    for policy in section.policies:
        by_control: dict[str, list[ControlResult]] = {}
        for part in policy.run_policies:
            for mark in part.fingerprints(judge)[:1]:
                for result in control_results(part.run, judge, mark):
                    by_control.setdefault(result.control, []).append(result)
        if by_control:
            by_policy[policy.name] = [_pooled_control(results) for results in by_control.values()]
    return by_policy


def _pooled_control(results: Sequence[ControlResult]) -> ControlResult:
    """Return the result over all runs' examples of one control."""
    scored = [result for result in results if result.examples] or results[:1]
    pooled = replace(scored[0], failed=sum(result.failed for result in results))
    if len(scored) == 1:
        return pooled
    total = sum(result.examples for result in scored)
    score = sum(result.score * result.examples for result in scored) / total
    own = sum(result.own * result.examples for result in scored) / total
    return replace(pooled, score=score, own=own, examples=total)


def control_table(section: Section, judge: str | None) -> Table | None:
    """Return the table of scores of controls (worthless answers) next to the policy's own on the
    same examples.

    None without a judge or if no controls were run.
    """
    by_policy = controls_of(section, judge) if judge is not None else {}
    if not by_policy:
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
    rows = tuple(
        _control_row(name, result) for name, results in by_policy.items() for result in results
    )
    sentences = [
        text for results in by_policy.values() for text in unfit_reasons(results, judge or "")
    ]
    notes = tuple(f"{text[0].upper()}{text[1:]}." for text in sentences) or (
        "No control gets a higher reward than the policy's own answers to the same questions.",
    )
    return Table("Controls: worthless answers", columns, rows, notes, "controls")


def _control_row(name: str, result: ControlResult) -> tuple[Cell, ...]:
    scores = (
        (decimal_cell(result.score, 2), decimal_cell(result.own, 2))
        if result.examples
        else (NONE, NONE)
    )
    return (
        Cell(name),
        Cell(result.control),
        *scores,
        Cell(str(result.examples)),
        Cell(str(result.failed)),
        Cell("above" if result.is_above_own else ""),
    )
