"""The tables of settings: results, differences to the base, counts, training; over temperatures,
turns, rows, rounds, seeds and settings; the best of N."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import comb
from statistics import fmean
from typing import NamedTuple

from convbench.reports.document import Cell, Column, Difference, Row, Table, cell_text, mean_of
from convbench.reports.frame import Setting, ask
from convbench.reports.metrics import Metric, headlines, main_metric, metrics_of, scale_note
from convbench.reports.policies import BASE, Policy, as_mapping
from convbench.reports.published import PrintedRow, is_named, printed_rows
from convbench.stats.estimates import ErrorKind, estimate, holm

ERRORS: Mapping[ErrorKind, str] = {
    "clustered": "standard error clustered by group (question, dialogue, passage)",
    "naive": "naive standard error, every conversation taken as independent",
}
POLICY = Column("policy", "Policy", text=True)
STARS = "* p < .05, ** p < .01, *** p < .001, by Holm over the policies."


def results(setting: Setting, *, paper: bool = False) -> Table:
    """Return the means of each policy by all metrics; with `paper` printed ones stand below."""
    metrics = metrics_of(setting)
    printed = printed_of(setting) if paper else []
    rows, ours = [], []
    for policy in setting.policies:
        rows.append(Row((policy.name, *(setting.mean(policy, m.key) for m in metrics))))
        # Of an untrained policy by its model if the paper has it, else by its name.
        name = policy.name.partition(" (")[0] if policy.recipe or policy.is_own else policy.name
        models = (row.method for row in printed if is_named(row.method, policy.model_name))
        label = name if policy.recipe else next(models, name)
        size = str(policy.data.get("rows", ""))
        for row in printed:
            if is_named(row.method, label) and row.rows == size and not row.args:
                rows.append(_printed(row, metrics, "  printed"))
                ours.append(row)
    others = (row for row in printed if row not in ours and not row.rows)
    rows += [_printed(row, metrics, f"{row.name}, printed") for row in others]
    count, groups = len(setting.rows), setting.rows["group"].nunique()
    split = "all splits" if setting.split == "all" else f"split {setting.split}"
    notes = [
        f"Mean ± {ERRORS[setting.kind]}; {count:,} conversation{'s' * (count != 1)} of {split} "
        f"about {groups:,} group{'s' * (groups != 1)}.",
        *scale_note(metrics),
    ]
    if not setting.judges:
        notes.append("Not judged yet: convbench judge --judge NAME.")
    notes += [
        f"Judge {judge} ranks the conversations about one question: its scores say nothing between "
        "policies."
        for judge, spec in setting.judges.items()
        if spec is not None and spec.is_relative
    ]
    if printed:
        sources = ", ".join(dict.fromkeys(f"{row.paper}, table {row.table}" for row in printed))
        notes.append(
            f"Printed: {sources}. Errors printed there are naive; --se naive gives ours so."
        )
    return Table("results", "Results", (POLICY, *metrics), tuple(rows), (*notes, *setting.notes))


def printed_of(setting: Setting) -> list[PrintedRow]:
    """Return what papers print for a setting."""
    own = next((policy for policy in setting.policies if policy.is_own), setting.policies[0])
    return printed_rows(
        setting.task,
        setting.mode,
        setting.protocol,
        setting.turns,
        judges=list(setting.judges),
        model=own.run.manifest.policy_member.model,
        variant=setting.more,
    )


def _printed(row: PrintedRow, metrics: Sequence[Metric], name: str) -> Row:
    return Row((name, *(row.values.get(metric.key) for metric in metrics)), printed=True)


def differences(setting: Setting, baseline: str | None = None) -> Table | None:
    """Return paired differences to each one's base, or to the policy of a name, by all headlines,
    so that form or a judge's taste is seen; None if nothing is compared."""
    pairs = list(compared(setting, baseline))
    bases = [base.name for _, base in pairs]
    found = {
        metric: [setting.difference(*pair, metric.key) for pair in pairs]
        for metric in headlines(setting)
    }
    found = {metric: column for metric, column in found.items() if any(column)}
    if not found:
        return None
    several = len(set(bases)) > 1
    columns = [POLICY, *([Column("base", "over", text=True)] if several else [])]
    cells: list[Sequence[Cell]] = [[policy.name for policy, _ in pairs], *([bases] * several)]
    for metric, changes in found.items():
        columns.append(as_difference(metric))
        adjusted = holm([None if change is None else change.p for change in changes], bases)
        cells.append([c and Difference(c, p) for c, p in zip(changes, adjusted, strict=True)])
    columns.append(Column("pairs", "pairs"))
    cells.append(
        [max((c.n for c in row if c), default=0) for row in zip(*found.values(), strict=True)]
    )
    over = "groups" if setting.kind == "clustered" else "conversations"
    notes = (
        f"Paired by question, sample and temperature; 95% interval, Student's t over {over}. "
        f"{STARS}",
        *scale_note(found),
    )
    rows = tuple(map(Row, zip(*cells, strict=True)))
    caption = f"Differences to {'its own base' if several else bases[0]}"
    return Table("differences", caption, tuple(columns), rows, notes)


def as_difference(metric: Metric) -> Column:
    """Return the column of differences in a metric."""
    return Column(metric.key, metric.head, metric.short, min(metric.digits, 3))


def compared(setting: Setting, baseline: str | None = None) -> Iterator[tuple[Policy, Policy]]:
    """Yield (policy, baseline): its own base, or the policy of that name in any case."""
    typed = (baseline or "").casefold()
    named = next((policy for policy in setting.policies if policy.name.casefold() == typed), None)
    for policy in setting.policies:
        base = setting.base_of(policy) if baseline is None else named
        if base is not None and base is not policy:
            yield policy, base


def answers(setting: Setting) -> Iterator[str]:
    """Yield one line for each policy that has a base: what it gains, and how form changed."""
    metric = main_metric(setting)
    for policy, base in compared(setting) if metric else ():
        assert metric is not None
        gain = setting.difference(policy, base, metric.key)
        if gain is None:
            continue
        head = "accuracy" if metric.key == "correct" else metric.head
        change = " ".join(filter(None, cell_text(Difference(gain), as_difference(metric))))
        over = base.name if base.name != BASE else f"its base {base.model}"
        line = f"{policy.name}: {head} {change} over {over}, {gain.n:,} pairs"
        unread = [setting.mean(each, "unread") for each in (base, policy)]
        if metric.key == "correct" and all(unread):
            line += "; unread " + " → ".join(f"{u.mean:.1f} %" for u in unread if u)
        yield line


def counts(setting: Setting) -> Table:
    """Return how many conversations each policy has, and what is missing, failed or unread."""
    heads = ("planned", "missing", "failed", "complete", "unread", "flagged")
    columns = [POLICY, *(Column(head, head) for head in heads)]
    for judge in setting.judges:
        columns += [
            Column(f"{judge}/{head}", f"{judge} {head}", f"{judge[:8]} {head}")
            for head in ("scored", "failed", "unjudged")
        ]
    rows = []
    for policy in setting.policies:
        own, planned = setting.rows_of(policy), policy.planned
        complete = own[~own["failed"]]
        known = [planned, planned - len(own), len(own) - len(complete), len(complete)]
        known.append((own["unread"] > 0).sum() if "unread" in own else 0)
        known.append(complete["flagged"].sum())
        for failed in (complete[f"{judge}/failed"] for judge in setting.judges):
            known += [(failed == 0).sum(), (failed == 1).sum(), failed.isna().sum()]
        rows.append(Row((policy.name, *map(int, known))))
    notes = (
        "Missing and failed conversations are in no mean; unread answers count as wrong; a failed "
        "verdict is no score.",
    )
    return Table("counts", "Counts", tuple(columns), tuple(rows), notes)


def training(setting: Setting) -> Table | None:
    """Return how each checkpoint was trained, a row for each run; None if nothing is known."""
    rows = []
    for policy in setting.policies:
        for log in (log for log in policy.trainings if log.get("unit")):
            counts, devices = as_mapping(log.get("counts")), as_mapping(log.get("devices"))
            done = (counts.get("pairs", counts.get("rows")), log.get("steps"), log.get("seconds"))
            where = ", ".join(f"{n} x {name}" for name, n in devices.items()) or None
            rows.append(Row((policy.name, log["unit"], *done, where)))
    if not rows:
        return None
    columns = (
        POLICY,
        Column("row", "row", text=True),
        *(Column(head, head) for head in ("rows", "steps", "seconds")),
        Column("devices", "devices", text=True),
    )
    notes = ("A row is what a batch holds: a conversation, a turn under its history, or a pair.",)
    return Table("training", "Training", columns, tuple(rows), notes)


class Point(NamedTuple):
    """A policy at one value of what is varied; the setting has the conversations of that value."""

    name: str
    """The learner, which has several points."""
    x: float
    setting: Setting
    policy: Policy


Varied = list[tuple[Column, list[Point]]]
"""What is varied, as a column, with its points: at least two of each learner."""


def _varied(*found: tuple[Column, Iterable[Point]]) -> Varied:
    varied = []
    for key, points in found:
        every = list(points)
        counts = Counter(name for name, _ in {point[:2] for point in every})
        varied.append((key, [point for point in every if counts[point.name] > 1]))
    return [(key, points) for key, points in varied if points]


def within(setting: Setting) -> Varied:
    """Return what varies within a setting; round 0 is the base."""
    pooled = [policy for policy in setting.policies if len(policy.runs) > 1]
    temperature = Column("temperature", "Temperature", "T", 1)
    return _varied(
        (temperature, _parts(setting, "temperature", setting.policies)),
        (Column("rounds", "Round"), _rounds(setting)),
        (Column("rows", "Rows"), _sizes(setting)),
        (Column("seeds", "Seed"), _parts(setting, "seed", pooled)),
    )


def over_turns(settings: Sequence[Setting]) -> Varied:
    """Return the policies of settings that differ in the number of turns alone."""
    points: dict[str, list[Point]] = {}
    for setting in sorted(settings, key=lambda setting: setting.turns):
        for policy in setting.policies:
            point = Point(policy.name, setting.turns, setting, policy)
            points.setdefault(policy.name, []).append(point)
    return _varied((Column("turns", "Turns"), chain(*points.values())))


def _parts(setting: Setting, column: str, policies: Sequence[Policy]) -> Iterator[Point]:
    groups = setting.rows.groupby(column) if column in setting.rows else ()
    parts = [(float(x), replace(setting, rows=rows)) for x, rows in groups]
    yield from (Point(p.name, x, part, p) for p in policies for x, part in parts)


def _rounds(setting: Setting) -> Iterator[Point]:
    for learner in dict.fromkeys(p.learner for p in setting.policies if p.round is not None):
        rounds = [p for p in setting.policies if p.learner == learner and p.round is not None]
        base = setting.base_of(rounds[0])
        yield from (Point(learner, 0, setting, base) for base in [base] if base)
        yield from (Point(learner, p.round or 0, setting, p) for p in rounds)


def _sizes(setting: Setting) -> Iterator[Point]:
    """Yield the policies of each recipe by the rows that they were trained on, of one unit."""
    sized = [p for p in setting.policies if p.rows is not None and p.round is None]
    for p in sorted(sized, key=lambda p: p.rows or 0):
        unit = p.trainings[0].get("unit") or p.data.get("unit", "row")
        yield Point(f"{p.name.partition(' (')[0]} ({unit}s)", p.rows or 0, setting, p)


def by_key(key: Column, points: Sequence[Point]) -> Table:
    """Return means and paired differences to the base by what is varied, a row for each point."""
    metrics = list({m.key: m for point in points for m in headlines(point.setting)}.values())
    ranked = [metric for metric in metrics if metric.best]
    columns = [POLICY, key, *(replace(metric, best=False) for metric in metrics)]
    for m in ranked:
        change = (f"{m.head} − base", f"{m.short or m.head} − base", as_difference(m).digits)
        columns.append(Column(f"{m.key}_difference", *change))
    rows = []
    for name, x, setting, policy in points:
        base = setting.base_of(policy)
        changes = [base and setting.difference(policy, base, m.key) for m in ranked]
        means = (setting.mean(policy, m.key) for m in metrics)
        rows.append(Row((name, x, *means, *(Difference(c) if c else None for c in changes))))
    notes = (
        f"Mean ± {ERRORS[points[0].setting.kind]}; differences to the policy's own base with 95% "
        "intervals.",
    )
    return Table(key.key, f"By {key.head.lower()}", tuple(columns), tuple(rows), notes)


def matrix(settings: Sequence[Setting], *, paper: bool = False) -> Table | None:
    """Return policies by settings in the metric that most have, and in how many settings each is
    first, and among the first two; None if no policy but a base is in two of them."""
    measured = [(setting, metric) for setting in settings if (metric := main_metric(setting))]
    known = [metric.key for _, metric in measured]
    here = [(s, m) for s, m in measured if m.key == max(known, key=known.count)]
    lines: dict[tuple[bool, str], list[Cell]] = {}
    for place, (setting, metric) in enumerate(here):
        for policy in setting.policies:
            cells = lines.setdefault((False, policy.name), [None] * len(here))
            cells[place] = setting.mean(policy, metric.key)
        for one in printed_of(setting) if paper else []:
            if metric.key in one.values and not one.rows:
                cells = lines.setdefault((True, f"{one.name}, printed"), [None] * len(here))
                cells[place] = cells[place] or one.values[metric.key]
    shared = [n for (p, n), c in lines.items() if not p and len(here) - c.count(None) > 1]
    if all(name.partition(" (")[0] == BASE for name in shared):
        return None
    metric, tasks = here[0][1], [setting.task for setting, _ in here]
    heads = [s.task if tasks.count(s.task) == 1 else s.title for s, _ in here]
    columns = [POLICY, *(replace(metric, key=head, head=head, short="") for head in heads)]
    ordered = sorted(lines.items(), key=lambda line: line[0][0])  # printed rows below
    rows = [Row((name, *cells), printed) for (printed, name), cells in ordered]
    ranks = Table("", "", tuple(columns), tuple(rows)).ranks()
    for place, (row, ranked) in enumerate(zip(rows, ranks, strict=True)):
        means = [mean_of(cell) for cell in row.cells[1:]]
        mean = None if None in means else fmean(value for value in means if value is not None)
        first = ranked.count(1)
        rows[place] = replace(row, cells=(*row.cells, mean, first, first + ranked.count(2)))
    columns += [Column("mean", "Mean", digits=metric.digits), Column("first", "First")]
    columns.append(Column("first_two", "First two"))
    notes = (
        f"{metric.head}, mean ± {ERRORS[here[0][0].kind]}. Mean: all settings alike. First, first "
        "two: in how many settings; equal numbers share a place.",
    )
    return Table("matrix", "Policies by settings", tuple(columns), tuple(rows), notes)


SIZES = (1, 2, 4, 8, 16, 32, 64)
ORACLE = "the best one (oracle)"
CREDIT = """
SELECT conversation_id, source, sum(advantage) AS credit FROM advantages
GROUP BY conversation_id, source
"""


def best_of_n(setting: Setting) -> Table | None:
    """Return the expected reward of the best of N conversations about a question, picked by the sum
    of its turns' credit and by an oracle, over questions with as many as the largest N."""
    judge = next((name for name in setting.judges if f"{name}/reward" in setting.rows), None)
    if judge is None:
        return None
    (credit,) = ask(setting.runs, ("advantages",), CREDIT)
    reward = f"{judge}/reward"
    scored = setting.rows.merge(credit, on="conversation_id").dropna(subset=[reward])
    counts = scored.groupby(["policy", "source", "example_id"])[reward].transform("size")
    sizes = [n for n in SIZES if n <= counts.max()]
    if len(sizes) < 2:
        return None
    rows = []
    for (name, source), own in scored[counts >= sizes[-1]].groupby(
        ["policy", "source"], sort=False
    ):
        asked = [some for _, some in own.groupby("example_id")]
        groups = [some["group"].iloc[0] for some in asked]
        for picker, column in ((source, "credit"), (ORACLE, reward)):
            pairs = [list(zip(some[column], some[reward], strict=True)) for some in asked]
            values = ([best_of(each, n) for each in pairs] for n in sizes)
            means = (estimate(groups, each, setting.kind) for each in values)
            rows.append(Row((name, picker, len(asked), *means)))
    columns = (
        POLICY,
        Column("picked_by", "picked by", text=True),
        Column("questions", "questions"),
        *(Column(f"best_of_{n}", f"N = {n}", digits=3) for n in sizes),
    )
    notes = (
        f"Expected reward by {judge} of the conversation with the most credit among N of a "
        "question's, drawn without replacement; N = 1 is the mean. A critic sees the hidden "
        f"reference: this is what its credit is worth. Mean ± {ERRORS[setting.kind]}.",
    )
    return Table("best-of-n", "Best of N by credit", columns, tuple(rows), notes)


def best_of(scored: Sequence[tuple[float, float]], n: int) -> float:
    """Return the expected second value of the pair with the largest first value among `n` pairs
    drawn without replacement; ties are broken at random."""
    tied = {top: fmean(value for first, value in scored if first == top) for top, _ in scored}
    ordered = enumerate(sorted(top for top, _ in scored))
    # Of the draws, comb(k, n - 1) have the pair number k as their largest.
    return sum(comb(k, n - 1) * tied[top] for k, top in ordered) / comb(len(scored), n)
