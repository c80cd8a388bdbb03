"""The tables of a report: results, differences to the base, temperatures, counts, training, and
what is compared over turns, rows, rounds, seeds and tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convbench.reports.document import (
    Cell,
    Column,
    Difference,
    Row,
    Table,
    difference_text,
)
from convbench.reports.frame import Setting
from convbench.reports.frame import mean_of as mean_of_rows
from convbench.reports.metrics import (
    ACCURACY,
    Metric,
    headlines,
    is_relative,
    main_metric,
    metrics_of,
    scale_note,
)
from convbench.reports.policies import BASE, Policy
from convbench.reports.published import PrintedRow, is_named, is_printed_of, printed_rows
from convbench.stats.estimates import ErrorKind, Estimate, holm

if TYPE_CHECKING:
    pass

ERRORS: Mapping[ErrorKind, str] = {
    "clustered": "standard error clustered by group (question, dialogue, passage)",
    "naive": "naive standard error, every conversation taken as independent",
}
METHOD = Column("policy", "Policy", text=True)
STARS = "* p < .05, ** p < .01, *** p < .001, by Holm over the policies."


def metric_column(metric: Metric) -> Column:
    """Return the column of a metric."""
    return Column(metric.column, metric.head, metric.short, metric.digits, best=metric.best)


def results(setting: Setting, kind: ErrorKind, *, paper: bool = False) -> Table:
    """Return the means of each policy by all metrics; with `paper` what papers print of the setting
    stands below."""
    metrics = metrics_of(setting)
    printed = printed_of(setting) if paper else []
    rows, ours = [], []
    for policy in setting.policies:
        means = (setting.mean(policy, m.column, kind, m.scale) for m in metrics)
        rows.append(Row((policy.name, *means)))
        found = _rows_of(policy, printed)
        rows += [_printed(row, metrics, "  printed") for row in found]
        ours += found
    rows += [
        _printed(row, metrics, f"{row.name}, printed")
        for row in printed
        if row not in ours and not row.rows
    ]
    notes = [f"Mean ± {ERRORS[kind]}; {_size(setting)}.", *scale_note(metrics)]
    alone = [n.n for row in rows for n in row.cells if isinstance(n, Estimate) and n.df < 1 < n.n]
    if alone:
        of = "conversation" if kind == "naive" else f"group (up to {max(alone):,} conversations)"
        notes.append(f"No standard error is given for means over a single {of}: it needs two.")
    if not setting.judges:
        notes.append("Not judged yet: convbench judge --judge NAME.")
    notes += [
        f"Judge {judge} ranks the conversations about one question: its scores say nothing between "
        "policies."
        for judge in setting.judges
        if is_relative(setting, judge)
    ]
    if printed:
        sources = ", ".join(dict.fromkeys(f"{row.paper}, table {row.table}" for row in printed))
        notes.append(
            f"Printed: {sources}. Errors printed there are naive; --se naive gives ours so."
        )
    columns = (METHOD, *map(metric_column, metrics))
    return Table("results", "Results", columns, tuple(rows), (*notes, *setting.notes))


def _size(setting: Setting) -> str:
    conversations, groups = len(setting.rows), setting.rows["group"].nunique()
    split = "all splits" if setting.split == "all" else f"split {setting.split}"
    return (
        f"{conversations:,} conversation{'s' * (conversations != 1)} of {split} about {groups:,} "
        f"group{'s' * (groups != 1)}"
    )


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


def _rows_of(policy: Policy, printed: Sequence[PrintedRow]) -> list[PrintedRow]:
    """Return the printed rows of a policy: by its model if the paper has that one too, and of a
    learner's variants the one that tells most of its arguments."""
    models = (row.method for row in printed if is_named(row.method, policy.model_name))
    label = plain_name(policy) if policy.recipe else next(models, plain_name(policy))
    found = [row for row in printed if is_printed_of(row, label, policy.recipe)]
    return [row for row in found if len(row.args) == max(len(each.args) for each in found)]


def plain_name(policy: Policy) -> str:
    """Return a policy's name without the brackets that tell it from others."""
    return policy.name.partition(" (")[0] if policy.recipe or policy.is_own else policy.name


def _printed(row: PrintedRow, metrics: Sequence[Metric], name: str) -> Row:
    values = (row.values.get(metric.column) for metric in metrics)
    scaled = (
        None if value is None else value.scaled(metric.scale)
        for value, metric in zip(values, metrics, strict=True)
    )
    return Row((name, *scaled), printed=True)


def differences(setting: Setting, kind: ErrorKind, baseline: str | None = None) -> Table | None:
    """Return each policy's paired differences to its own base, or to the policy of a name: accuracy
    beside unread answers, every judge and words, so that form or a judge's taste is seen.

    None if nothing is compared.
    """
    pairs = list(compared(setting, baseline))
    metrics = headlines(setting)
    cells = [
        [setting.difference(policy, base, m.column, kind, m.scale) for policy, base in pairs]
        for m in metrics
    ]
    kept = [place for place, column in enumerate(cells) if any(column)]
    if not kept:
        return None
    columns = [METHOD]
    bases = list(dict.fromkeys(base.name for _, base in pairs))
    if len(bases) > 1:
        columns.append(Column("base", "over", text=True))
    columns += [
        Column(m.column, m.head, m.short, min(m.digits, 3)) for m in (metrics[i] for i in kept)
    ]
    columns.append(Column("pairs", "pairs"))
    adjusted = {place: _adjusted(cells[place], pairs) for place in kept}
    rows = []
    for number, (policy, base) in enumerate(pairs):
        found = [cells[place][number] for place in kept]
        own: list[Cell] = [
            None if value is None else Difference(value, adjusted[place][number])
            for place, value in zip(kept, found, strict=True)
        ]
        name: list[Cell] = [policy.name, base.name] if len(bases) > 1 else [policy.name]
        rows.append(Row((*name, *own, max((v.n for v in found if v), default=0))))
    unit = "groups" if kind == "clustered" else "conversations"
    notes = (
        "Paired by question, sample and temperature; 95% interval, Student's t over "
        f"{unit}. {STARS}",
        *scale_note(metrics[place] for place in kept),
    )
    over = bases[0] if len(bases) == 1 else "its own base"
    return Table("differences", f"Differences to {over}", tuple(columns), tuple(rows), notes)


def compared(setting: Setting, baseline: str | None = None) -> Iterator[tuple[Policy, Policy]]:
    """Yield (policy, baseline): its own base, or the policy of that name."""
    named = next((policy for policy in setting.policies if policy.name == baseline), None)
    for policy in setting.policies:
        base = setting.base_of(policy) if baseline is None else named
        if base is not None and base is not policy:
            yield policy, base


def _adjusted(
    column: Sequence[Estimate | None], pairs: Sequence[tuple[Policy, Policy]]
) -> list[float | None]:
    """Return p by Holm over the policies that share a base."""
    adjusted: list[float | None] = [None] * len(column)
    for base in dict.fromkeys(base.name for _, base in pairs):
        places = [place for place, (_, other) in enumerate(pairs) if other.name == base]
        found = (column[place] for place in places)
        for place, p in zip(places, holm([v.p if v else None for v in found]), strict=True):
            adjusted[place] = p
    return adjusted


def answers(setting: Setting, kind: ErrorKind) -> Iterator[str]:
    """Yield one line for each policy that has a base: what it gains, and how form changed."""
    metric = main_metric(setting)
    for policy, base in compared(setting) if metric else ():
        assert metric is not None
        gain = setting.difference(policy, base, metric.column, kind, metric.scale)
        if gain is None:
            continue
        text, span = difference_text(Difference(gain, None), min(metric.digits, 3))
        line = f"{policy.name}: {metric.head.lower() if metric is ACCURACY else metric.head} {text}"
        over = base.name if base.name != BASE else f"its base {base.model}"
        line += f" {span}".rstrip() + f" over {over}, {gain.n:,} pairs"
        unread = [mean_of_rows(setting.rows_of(p), "unread", kind, 100) for p in (base, policy)]
        if metric is ACCURACY and all(unread):
            line += "; unread " + " → ".join(f"{u.mean:.1f} %" for u in unread if u)
        yield line


def by_temperature(setting: Setting, kind: ErrorKind) -> Table | None:
    """Return means and paired differences at each temperature; None for a single one."""
    metrics = [m for m in headlines(setting) if m.best]
    sent = setting.rows["temperature"].unique() if "temperature" in setting.rows else []
    temperatures = sorted(t for t in sent if t == t)
    if len(temperatures) < 2 or not metrics:
        return None
    columns = [METHOD, Column("temperature", "T", digits=1), Column("n", "n")]
    for metric in metrics:
        columns += [
            Column(metric.column, metric.head, metric.short, metric.digits),
            Column(f"{metric.column}_difference", "− base", digits=min(metric.digits, 3)),
        ]
    rows = []
    for policy in setting.policies:
        base = setting.base_of(policy)
        for t in temperatures:
            here = _only(setting, setting.rows["temperature"] == t)
            own = here.rows_of(policy)
            cells: list[Cell] = [policy.name, float(t), int((~own["failed"]).sum())]
            for m in metrics:
                cells.append(here.mean(policy, m.column, kind, m.scale))
                change = base and here.difference(policy, base, m.column, kind, m.scale)
                cells.append(Difference(change, None) if change else None)
            rows.append(Row(tuple(cells)))
    notes = (f"Mean ± {ERRORS[kind]}; differences to the policy's own base, 95% interval.",)
    return Table("temperatures", "By temperature", tuple(columns), tuple(rows), notes)


def _only(setting: Setting, where: Any) -> Setting:
    """Return the setting with some of its rows."""
    from dataclasses import replace

    return replace(setting, rows=setting.rows[where])


def counts(setting: Setting) -> Table:
    """Return how many conversations each policy has, and what is missing, failed or unread."""
    heads = ["planned", "missing", "failed", "complete", "unread", "flagged"]
    columns = [METHOD, *(Column(head, head) for head in heads)]
    for judge in setting.judges:
        columns += [
            Column(f"{judge}/{head}", f"{judge} {head}", f"{judge[:8]} {head}")
            for head in ("scored", "failed", "unjudged")
        ]
    rows = [Row((policy.name, *_counts(setting, policy))) for policy in setting.policies]
    notes = (
        "Missing and failed conversations are in no mean; unread answers count as wrong; a failed "
        "verdict is no score.",
    )
    return Table("counts", "Counts", tuple(columns), tuple(rows), notes)


def _counts(setting: Setting, policy: Policy) -> Iterator[int]:
    own = setting.rows_of(policy)
    complete = own[~own["failed"]]
    yield from (policy.planned, policy.planned - len(own), len(own) - len(complete), len(complete))
    yield int(own["unread"].sum()) if "unread" in own else 0
    yield int(complete["flagged"].sum())
    for judge in setting.judges:
        failed = complete.get(f"{judge}/failed", None)
        scored = 0 if failed is None else int((failed == 0).sum())
        broken = 0 if failed is None else int((failed == 1).sum())
        yield from (scored, broken, len(complete) - scored - broken)


TRAINING: tuple[tuple[str, str, Callable[[Mapping[str, Any]], Cell]], ...] = (
    ("row", "row", lambda t: t.get("unit")),
    ("rows", "rows", lambda t: (c := t.get("counts") or {}).get("pairs", c.get("rows"))),
    ("steps", "steps", lambda t: t.get("steps")),
    ("seconds", "seconds", lambda t: t.get("seconds")),
    ("devices", "devices",
     lambda t: ", ".join(f"{n} x {name}" for name, n in (t.get("devices") or {}).items()) or None),
)  # fmt: skip


def training(setting: Setting) -> Table | None:
    """Return how each checkpoint was trained, a row for each run; None if nothing is known."""
    known = [
        (policy.name, log)
        for policy in setting.policies
        for log in policy.trainings
        if log.get("unit")
    ]
    if not known:
        return None
    columns = (
        METHOD,
        *(Column(key, head, text=key in ("row", "devices")) for key, head, _ in TRAINING),
    )
    rows = tuple(Row((name, *(tell(log) for *_, tell in TRAINING))) for name, log in known)
    notes = ("A row is what a batch holds: a conversation, a turn under its history, or a pair.",)
    return Table("training", "Training", columns, rows, notes)
