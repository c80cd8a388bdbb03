"""Another paper's table with our methods in it (`report --paper`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from convbench.judges.adaptation.accuracies import NOTHING, PASSAGE, UNTRAINED
from convbench.judges.few_shot.baselines import ORACLE
from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Table
from convbench.reports.measures import ACCURACY, Measure, metric_measure
from convbench.reports.policies import NAMES, Policy, judge_spec
from convbench.reports.published import (
    FEW_SHOT,
    LARGE,
    RIVAL,
    SELF_EDITS,
    ReferenceTable,
    is_data_writer,
    known_model,
    reference_of,
)
from convbench.reports.sections import Section
from convbench.reports.tables.adaptation import adaptation_accuracies, taught_by
from convbench.reports.tables.cells import estimate_cell
from convbench.reports.tables.judges import duel_points
from convbench.reports.tables.many_passages import pretrained_accuracies, trains_all_weights
from convbench.stats.means import ErrorKind, Estimate, estimate_mean

MethodLine = tuple[str, str, tuple[Estimate | None, ...]]
"""A method of ours: its name in the paper, its name here, an estimate a column."""
EDITS = {
    NOTHING: "Base",
    PASSAGE: "Passage only",
    UNTRAINED: "Passage + untrained self-edits",
    "SEAL": "SEAL round 1",
}
"""The paper's names for what is trained on."""
SOLVED = {
    NOTHING: "ICL",
    UNTRAINED: "TTT + untrained self-edits",
    ORACLE: "Oracle TTT",
    "SEAL few-shot round 1": "SEAL",
}
"""The paper's names for what is trained on in few-shot tasks."""


def reference_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return another paper's table for this protocol with our methods in it; None if there is no
    table for the protocol.

    Our methods stand above the paper's line of that name, others at the end; values that we did not
    measure are `-`.
    """
    reference = reference_of(section.protocol, section.base.model if section.base else "")
    if reference is None:
        return None
    edits = reference.title in (SELF_EDITS, FEW_SHOT)
    lines = list(
        _edit_lines(section, judge, kind)
        if edits
        else _collaboration_lines(section, judge, kind, reference)
    )
    rows = []
    for method, values in reference.methods.items():
        rows += [_own_cells(line, section, reference) for line in lines if line[0] == method]
        texts = ["-" if v is None else f"{v:.{reference.digits}f}" for v in values]
        rows.append(tuple(Cell(x, quiet=True) for x in (f"  {method}", reference.authors, *texts)))
    rows += [_own_cells(x, section, reference) for x in lines if x[0] not in reference.methods]
    columns = (
        Column("Method", "Method", numeric=False),
        Column("Measured", "Measured", numeric=False),
        *reference.columns,
    )
    notes = (
        f"Lines of {reference.authors} are printed there: {reference.citation}; "
        f"{reference.setting}. "
        "Models, data and judge are not ours: read ours against ours, theirs against theirs.",
        "Ours: mean ± standard error; - means not measured.",
    )
    return Table(reference.title, columns, tuple(rows), notes, "published")


def _own_cells(line: MethodLine, section: Section, reference: ReferenceTable) -> tuple[Cell, ...]:
    _, name, values = line
    return (Cell(name), Cell(section.task), *(estimate_cell(v, reference.digits) for v in values))


def _collaboration_lines(
    section: Section, judge: str | None, kind: ErrorKind, reference: ReferenceTable
) -> Iterator[MethodLine]:
    measures = _colbench_measures(section, judge)
    *_, cosine = measures
    known = [_published_name(policy, reference) for policy in section.policies]
    rival = section.policies[known.index(RIVAL)] if RIVAL in known else None
    for policy, name in zip(section.policies, known, strict=True):
        estimates = [replace(m, scale=100.0).mean_of(policy, kind) if m else None for m in measures]
        won = duel_points(policy, rival, cosine) if cosine and rival and rival is not policy else []
        estimates.append(estimate_mean(((group, 100 * point) for group, point in won), kind))
        yield name, policy.name, tuple(estimates)


def _colbench_measures(
    section: Section, judge: str | None
) -> tuple[Measure | None, Measure | None, Measure | None]:
    """Return the measures (success, tests passed, cosine of pages), None for those this judge does
    not have. A cosine of pages counts only if it is CLIP's."""
    spec = judge_spec(section.policies, judge)
    if judge is None or spec is None or kind_of(spec).measures not in ("tests", "pages"):
        return ACCURACY, None, None
    overall = metric_measure(judge, "overall")
    if kind_of(spec).measures == "tests":
        return metric_measure(judge, "accuracy"), overall, None
    return None, None, overall if spec.args.get("measure") == "clip" else None


def _published_name(policy: Policy, reference: ReferenceTable) -> str:
    """Return the name of one of our policies in ColBench's table."""
    if policy.is_other_model:
        return known_model(policy.model) or policy.name
    if policy.is_base:
        known = known_model(policy.model)
        trained = known is None or (known == LARGE and LARGE not in reference.methods)
        return "Zero-shot" if trained else str(known)
    name = policy.name.partition(" (")[0]
    if name != NAMES["sweet"]:  # multi-turn DPO, for one, is defined without both
        return name
    args = policy.recipe.get("args") or {}
    if not args.get("normalize", True):
        return f"{name} without length normalisation"
    return name if args.get("hidden", True) else f"{name} without training-time information"


def _edit_lines(section: Section, judge: str | None, kind: ErrorKind) -> Iterator[MethodLine]:
    few_shot = section.protocol == "self-edit-few-shot"
    others = (policy for policy in section.policies if policy.is_other_model)
    written = {taught_by(p): "Passage + GPT-4.1 data" for p in others if is_data_writer(p.model)}
    taught = adaptation_accuracies(section, judge)
    pretrained = pretrained_accuracies(section, judge)
    in_full = trains_all_weights(judge_spec(section.policies, judge))
    for name in dict.fromkeys((*taught, *pretrained)):
        mean = estimate_mean(taught.get(name, ()), kind)
        if few_shot:
            yield SOLVED.get(name, name), name, (mean,)
        else:
            at_once = estimate_mean(pretrained.get(name, ()), kind)
            both = (None, at_once) if in_full else (at_once, None)
            yield {**EDITS, **written}.get(name, name), name, (mean, *both)
