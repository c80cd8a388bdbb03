"""The tables of one setting: results, differences to the base, counts, training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convbench.reports.document import Cell, Column, Difference, Row, Table, cell_text
from convbench.reports.frame import Setting
from convbench.reports.metrics import (
    ACCURACY,
    Metric,
    headlines,
    main_metric,
    metrics_of,
    scale_note,
)
from convbench.reports.policies import BASE, Policy, as_mapping
from convbench.reports.published import PrintedRow, is_named, is_printed_of, printed_rows
from convbench.stats.estimates import ErrorKind, Estimate, holm

ERRORS: Mapping[ErrorKind, str] = {
    "clustered": "standard error clustered by group (question, dialogue, passage)",
    "naive": "naive standard error, every conversation taken as independent",
}
POLICY = Column("policy", "Policy", text=True)
STARS = "* p < .05, ** p < .01, *** p < .001, by Holm over the policies."


def results(setting: Setting, *, paper: bool = False) -> Table:
    """Return the means of each policy by all metrics; with `paper` what papers print of the setting
    stands below."""
    metrics = metrics_of(setting)
    printed = printed_of(setting) if paper else []
    rows, ours = [], []
    for policy in setting.policies:
        rows.append(Row((policy.name, *(setting.mean(policy, m.key) for m in metrics))))
        found = _rows_of(policy, printed)
        rows += [_printed(row, metrics, "  printed") for row in found]
        ours += found
    rows += [
        _printed(row, metrics, f"{row.name}, printed")
        for row in printed
        if row not in ours and not row.rows
    ]
    notes = [f"Mean ± {ERRORS[setting.kind]}; {_size(setting)}.", *scale_note(metrics)]
    alone = [n.n for row in rows for n in row.cells if isinstance(n, Estimate) and n.df < 1 < n.n]
    if alone:
        notes.append(
            "No standard error is given for means over a single "
            + (f"group (up to {max(alone):,} conversations)" if setting.kind == "clustered"
               else "conversation") + ": it needs two."
        )  # fmt: skip
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
    name = policy.name.partition(" (")[0] if policy.recipe or policy.is_own else policy.name
    models = (row.method for row in printed if is_named(row.method, policy.model_name))
    label = name if policy.recipe else next(models, name)
    asked = (label, policy.data.get("rows", ""), as_mapping(policy.recipe.get("args")))
    found = [row for row in printed if is_printed_of(row, *asked)]
    return [row for row in found if len(row.args) == max(len(each.args) for each in found)]


def _printed(row: PrintedRow, metrics: Sequence[Metric], name: str) -> Row:
    return Row((name, *(row.values.get(metric.key) for metric in metrics)), printed=True)


def differences(setting: Setting, baseline: str | None = None) -> Table | None:
    """Return each policy's paired differences to its own base, or to the policy of a name: accuracy
    beside unread answers, every judge and words, so that form or a judge's taste is seen.

    None if nothing is compared.
    """
    pairs = list(compared(setting, baseline))
    bases = list(dict.fromkeys(base.name for _, base in pairs))
    found = {
        metric: [setting.difference(*pair, metric.key) for pair in pairs]
        for metric in headlines(setting)
    }
    found = {metric: column for metric, column in found.items() if any(column)}
    if not found:
        return None
    columns = [POLICY]
    cells: list[list[Cell]] = [[policy.name for policy, _ in pairs]]
    if len(bases) > 1:
        columns.append(Column("base", "over", text=True))
        cells.append([base.name for _, base in pairs])
    for metric, changes in found.items():
        columns.append(as_difference(metric))
        cells.append(_tested(changes, [base.name for _, base in pairs]))
    columns.append(Column("pairs", "pairs"))
    cells.append([max(c.n for c in changes if c) if any(changes) else 0
                  for changes in zip(*found.values(), strict=True)])  # fmt: skip
    over = "groups" if setting.kind == "clustered" else "conversations"
    notes = (
        f"Paired by question, sample and temperature; 95% interval, Student's t over {over}. "
        f"{STARS}",
        *scale_note(found),
    )
    rows = tuple(map(Row, zip(*cells, strict=True)))
    caption = f"Differences to {bases[0] if len(bases) == 1 else 'its own base'}"
    return Table("differences", caption, tuple(columns), rows, notes)


def as_difference(metric: Metric) -> Column:
    """Return the column of differences in a metric."""
    return Column(metric.key, metric.head, metric.short, min(metric.digits, 3))


def compared(setting: Setting, baseline: str | None = None) -> Iterator[tuple[Policy, Policy]]:
    """Yield (policy, baseline): its own base, or the policy of that name."""
    named = next((policy for policy in setting.policies if policy.name == baseline), None)
    for policy in setting.policies:
        base = setting.base_of(policy) if baseline is None else named
        if base is not None and base is not policy:
            yield policy, base


def _tested(changes: Sequence[Estimate | None], bases: Sequence[str]) -> list[Cell]:
    """Return differences with p by Holm over the policies that share a base."""
    cells: list[Cell] = [None] * len(changes)
    for base in dict.fromkeys(bases):
        own = {place: c for place, c in enumerate(changes) if bases[place] == base and c}
        for (place, change), p in zip(own.items(), holm([c.p for c in own.values()]), strict=True):
            cells[place] = Difference(change, p)
    return cells


def answers(setting: Setting) -> Iterator[str]:
    """Yield one line for each policy that has a base: what it gains, and how form changed."""
    metric = main_metric(setting)
    for policy, base in compared(setting) if metric else ():
        assert metric is not None
        gain = setting.difference(policy, base, metric.key)
        if gain is None:
            continue
        head = "accuracy" if metric is ACCURACY else metric.head
        change = " ".join(filter(None, cell_text(Difference(gain), as_difference(metric))))
        over = base.name if base.name != BASE else f"its base {base.model}"
        line = f"{policy.name}: {head} {change} over {over}, {gain.n:,} pairs"
        unread = [setting.mean(each, "unread") for each in (base, policy)]
        if metric is ACCURACY and all(unread):
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
    rows = tuple(Row((policy.name, *_counts(setting, policy))) for policy in setting.policies)
    notes = (
        "Missing and failed conversations are in no mean; unread answers count as wrong; a failed "
        "verdict is no score.",
    )
    return Table("counts", "Counts", tuple(columns), rows, notes)


def _counts(setting: Setting, policy: Policy) -> Iterator[int]:
    own = setting.rows_of(policy)
    complete = own[~own["failed"]]
    yield from (policy.planned, policy.planned - len(own), len(own) - len(complete), len(complete))
    yield int((own["unread"] > 0).sum()) if "unread" in own else 0
    yield int(complete["flagged"].sum())
    for judge in setting.judges:
        failed = complete[f"{judge}/failed"]
        yield from (int((failed == 0).sum()), int((failed == 1).sum()), int(failed.isna().sum()))


def training(setting: Setting) -> Table | None:
    """Return how each checkpoint was trained, a row for each run; None if nothing is known."""
    rows = [
        Row((policy.name, *_training(log)))
        for policy in setting.policies
        for log in policy.trainings
        if log.get("unit")
    ]
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


def _training(log: Mapping[str, Any]) -> Iterator[Cell]:
    counts, devices = as_mapping(log.get("counts")), as_mapping(log.get("devices"))
    yield from (log["unit"], counts.get("pairs", counts.get("rows")))
    yield from (log.get("steps"), log.get("seconds"))
    yield ", ".join(f"{n} x {name}" for name, n in devices.items()) or None
