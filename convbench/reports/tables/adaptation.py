"""Tables of self-edits: what they teach, and what settings few-shot self-edits choose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench.errors import RunError
from convbench.judges.adaptation.accuracies import NOTHING, PASSAGE, UNTRAINED, Values, tie_warning
from convbench.judges.few_shot.baselines import CONTROL, ORACLE
from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Table
from convbench.reports.policies import Policy, judge_spec, round_of
from convbench.reports.published import printed_rounds
from convbench.reports.sections import Section
from convbench.reports.tables.cells import NONE, estimate_cell, interval_cells, span_cell
from convbench.schema.judge_kinds import Measure
from convbench.stats.means import ErrorKind, Estimate, estimate_mean
from convbench.store.shape import read_object
from convbench.tasks.arc_agi.edit import GROUPS, STRATEGIES


@dataclass(frozen=True)
class TableWords:
    """Title, columns and note of a table of adaptations."""

    title: str
    measure: Column
    unit: Column
    note: str


TAUGHT = TableWords(
    "What self-edits teach",
    Column("Accuracy", "Acc."),
    Column("passages", "pass."),
    "Closed-book accuracy after training on it, mean ± standard error; differences paired by "
    "passage, Student's t over passages. Nothing: the base policy as it is.",
)
SOLVED = TableWords(
    "Success after self-edits",
    Column("Success rate", "Success"),
    Column("tasks", "tasks"),
    "Share of self-edits after which every test grid of the task is among two attempts, mean ± "
    "standard error; differences paired by task, Student's t over tasks. Nothing: in-context "
    "learning, the base policy as it is, with the same views and vote. One edit for all tasks: "
    "what the edits of solved train tasks ask for most often; what SEAL solves beyond it, it owes "
    "to edits that fit their tasks.",
)
ACCURACIES = "self-edits.json"
"""File in a run's folder of reports: accuracies of `train seal` by what was trained on."""
WORDS: Mapping[Measure, TableWords] = {"adaptations": TAUGHT, "solutions": SOLVED}


FILTERS: Mapping[str, str] = {
    "best-of-k": "the best edit of each passage",
    "improves": "every edit that raises the accuracy (SEAL's equation 2)",
    "right": "every edit that solves its task",
}
"""What a learner of self-edits learns from, by its recipe's filter."""


def adaptation_accuracies(section: Section, judge: str | None) -> dict[str, Values]:
    """Return (group, accuracy) pairs by what was trained on; empty if the judge is None or measures
    no adaptations.

    The keys, in this order and only if they have values, are nothing, the passage alone, the best
    known settings and the control (as `train seal` wrote them), Base's untrained edits, and the
    other policies' by `taught_by`. "Nothing" has one pair for each group. Raise RunError if
    their file (`self-edits.json`) is malformed.
    """
    spec = judge_spec(section.policies, judge)
    if judge is None or spec is None or kind_of(spec).measures not in WORDS:
        return {}
    accuracies: dict[str, Values] = {}
    if section.base is not None:
        accuracies[NOTHING] = _policy_accuracies(section.base, judge, before=True)
        accuracies |= {
            name: _baseline_accuracies(section.base, name) for name in (PASSAGE, ORACLE, CONTROL)
        }
        accuracies[UNTRAINED] = _policy_accuracies(section.base, judge)
    learnt = sorted((p for p in section.policies if not p.is_base), key=lambda p: p.name)
    accuracies |= {taught_by(policy): _policy_accuracies(policy, judge) for policy in learnt}
    return {name: values for name, values in accuracies.items() if values}


def taught_by(policy: Policy) -> str:
    """Return what was trained on if it was a policy's edits: a learner's name, or the edits of a
    model that is not trained, which the policy of the run learns."""
    return f"self-edits of {policy.name}" if policy.is_other_model else policy.name


def adaptation_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of what a section's self-edits teach; None if the judge is None, measures no
    adaptations, or scored none.

    The caption says which edits the learners learn from; if they differ in that, a note says it for
    each.
    """
    accuracies, spec = adaptation_accuracies(section, judge), judge_spec(section.policies, judge)
    if not accuracies or spec is None:
        return None
    table = taught_table(accuracies, kind, WORDS[kind_of(spec).measures])
    filters = {
        policy.name: FILTERS[str(policy.recipe["filter"])]
        for policy in section.policies
        if not policy.is_base and policy.recipe.get("filter") in FILTERS
    }
    if not filters:
        return table
    listed = list(dict.fromkeys(filters.values()))
    notes = (f"{name} learns {words}." for name, words in filters.items() if len(listed) > 1)
    caption = f"{table.caption}; learnt: {', or '.join(listed)}"
    return replace(table, caption=caption, notes=(*table.notes, *notes))


def taught_table(
    accuracies: Mapping[str, Values], kind: ErrorKind = "clustered", words: TableWords | None = None
) -> Table:
    """Return the table of accuracies, a row for each key: mean, 95% interval, difference to
    untrained edits paired by passage, and counts.

    Without untrained edits the differences are `-`. Without `words` they are those for few-shot
    tasks if the best known settings are among the keys.
    """
    words = words or (SOLVED if ORACLE in accuracies else TAUGHT)
    below = _by_passage(accuracies.get(UNTRAINED, []))
    rows = []
    for name, values in accuracies.items():
        figures = _accuracy_cells(values, {} if name == UNTRAINED else below, kind)
        passages = Cell(str(len(_by_passage(values))))
        rows.append((Cell(name), *figures, Cell(str(len(values))), passages))
    columns = (
        Column("Trained on", "Trained on", numeric=False),
        words.measure,
        Column("95% interval", "95%"),
        Column("− untrained", "−untr."),
        Column("95% interval", "95%"),
        Column("adaptations", "adapt."),
        words.unit,
    )
    tied = accuracies if words is TAUGHT else {}  # few-shot tries are only right or wrong
    ties = {name: tie_warning(values) for name, values in tied.items()}
    notes = (
        words.note,
        *_unequal_means(accuracies, words.unit.head),
        *(f"{name}: {warning}." for name, warning in ties.items() if warning),
    )
    return Table(words.title, columns, tuple(rows), notes, "self-edits")


def _unequal_means(accuracies: Mapping[str, Values], units: str) -> Iterator[str]:
    """Yield a note if paired differences are not the differences of the means."""
    below = accuracies.get(UNTRAINED, [])
    if not below:
        return
    mean = fmean(value for _, value in below)
    names = [
        name
        for name, values in accuracies.items()
        if name != UNTRAINED
        and (paired := _paired_change(values, _by_passage(below))) is not None
        and abs(fmean(v for _, v in values) - mean - paired.mean) >= 5e-4
    ]
    if names:
        yield (
            f"Differences count each of the {units} that both have once, means every adaptation: "
            f"so they are not the differences of the means ({', '.join(names)})."
        )


def _paired_change(values: Values, below: Mapping[str, float]) -> Estimate | None:
    """Return the mean difference to `below`, paired over the passages of both."""
    other = _by_passage(values)
    return estimate_mean((key, other[key] - below[key]) for key in other.keys() & below.keys())


def kind_table(sections: Sequence[Section], judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table that compares kinds of self-edits (the sections' protocols), a row for each
    learner and kind.

    Differences to the first kind are paired by passage. Accuracies with no edits or the passage
    alone are left out. None unless two protocols have adaptations.
    """
    accuracies_by_kind = {
        section.protocol: adaptation_accuracies(section, judge) for section in sections
    }
    accuracies_by_kind = {
        protocol: taught for protocol, taught in accuracies_by_kind.items() if taught
    }
    if len(accuracies_by_kind) < 2:
        return None
    first = next(iter(accuracies_by_kind))
    rows = []
    for way in dict.fromkeys(way for taught in accuracies_by_kind.values() for way in taught):
        if way in (NOTHING, PASSAGE):  # the same whatever the edits are
            continue
        below = _by_passage(accuracies_by_kind[first].get(way, []))
        for protocol, taught in accuracies_by_kind.items():
            values = taught.get(way, [])
            figures = _accuracy_cells(values, {} if protocol == first else below, kind)
            passages = Cell(str(len(_by_passage(values))))
            rows.append((Cell(way), Cell(protocol), *figures, passages))
    columns = (
        Column("Trained on", "Trained on", numeric=False),
        Column("Kind", "Kind", numeric=False),
        Column("Accuracy", "Acc."),
        Column("95% interval", "95%"),
        Column(f"− {first}", "−first"),
        Column("95% interval", "95%"),
        Column("passages", "pass."),
    )
    notes = (
        "Closed-book accuracy after training on it, mean ± standard error; differences paired by "
        "passage, Student's t over passages.",
    )
    return Table("Kinds of self-edits", columns, tuple(rows), notes, "kinds-of-self-edits")


def prompt_table(sections: Sequence[Section], judge: str | None) -> Table | None:
    """Return the table of what rounds of self-edits gain with each prompt (protocol): untrained
    edits, then every round, with the printed line below ours. None for one prompt, or if nothing
    was trained in rounds."""
    accuracies_by_prompt = {
        section.protocol: _accuracies_by_round(section, judge) for section in sections
    }
    taught = {name: values for name, values in accuracies_by_prompt.items() if len(values) > 1}
    if len(taught) < 2:
        return None
    printed = {name: printed_rounds(name) for name in taught}
    last = max(
        *(max(values) for values in taught.values()), *(len(p) - 1 for p in printed.values())
    )
    rows = []
    for name, by_round in taught.items():
        means = (estimate_mean(by_round[n]) if n in by_round else None for n in range(last + 1))
        gain = _paired_change(by_round[max(by_round)], _by_passage(by_round[0]))
        passages = str(len(_by_passage(by_round[0])))
        rows.append(
            (
                Cell(name),
                *(estimate_cell(mean, 3) for mean in means),
                *interval_cells(gain, 3),
                Cell(passages),
            )
        )
        if theirs := printed[name]:
            texts = [f"{value:.3f}" for value in theirs] + ["-"] * (last + 1 - len(theirs))
            texts += [f"{theirs[-1] - theirs[0]:+.3f}", "-", "-"]
            rows.append(tuple(Cell(text, quiet=True) for text in ("  printed", *texts)))
    columns = (
        Column("Prompt", "Prompt", numeric=False),
        Column("Untrained", "Untr."),
        *(Column(f"Round {number}", f"R{number}") for number in range(1, last + 1)),
        Column("Gain", "Gain"),
        Column("95% interval", "95%"),
        Column("passages", "pass."),
    )
    gains = [theirs[-1] - theirs[0] for theirs in printed.values() if theirs]
    notes = [
        "Closed-book accuracy after training on the edits that each prompt asks for, mean ± "
        "standard error. Gain: the last round less untrained edits, paired by passage, Student's t "
        "over passages."
    ]
    if gains:
        notes.append(
            "Printed: Zweiger et al. 2025 (SEAL), appendix C, which says that training improves "
            f"accuracy by about 6 to 11 points in all cases; the lines above gain "
            f"{100 * min(gains):.1f} to {100 * max(gains):.1f} points. Models, data and judge are "
            "not ours."
        )
    return Table("Rounds by prompt", columns, tuple(rows), tuple(notes), "prompts")


def _accuracies_by_round(section: Section, judge: str | None) -> dict[int, Values]:
    """Return accuracies of Base's edits (0) and of every round's; empty if the judge measures no
    adaptations or there is no Base."""
    accuracies = adaptation_accuracies(section, judge)
    rounds = {
        which[1]: accuracies[policy.name]
        for policy in section.policies
        if (which := round_of(policy)) is not None and policy.name in accuracies
    }
    start = {0: accuracies[UNTRAINED]} if UNTRAINED in accuracies else {}
    return {**start, **dict(sorted(rounds.items()))} if start else {}


def _accuracy_cells(
    values: Values, below: Mapping[str, float], kind: ErrorKind
) -> tuple[Cell, ...]:
    """Return the cells of the mean, its interval, its difference to `below` paired by passage, and
    the difference's interval."""
    mean, change = estimate_mean(values, kind), _paired_change(values, below)
    return (
        estimate_cell(mean, 3),
        span_cell(mean.interval if mean else None, 3),
        *interval_cells(change, 3),
    )


def _policy_accuracies(policy: Policy, judge: str, *, before: bool = False) -> Values:
    """Return (group, accuracy) after each adaptation; with `before` the accuracy before it, once a
    passage."""
    accuracies: Values = []
    for row in policy.observations:
        scored = row.verdicts.get(judge)
        if scored is not None and not scored.failed and "accuracy" in scored.scores:
            gain = scored.scores.get("gain", 0.0) if before else 0.0
            accuracies.append((row.group, scored.scores["accuracy"] - gain))
    return list(_by_passage(accuracies).items()) if before else accuracies


def accuracies_file(reports: Path) -> Path:
    """Return the file of accuracies in a run's folder of reports: that of the recipe, else of a
    labelled learner."""
    file = reports / ACCURACIES
    labelled = sorted(reports.glob(f"{file.stem}-*.json"))
    return next((path for path in (file, *labelled) if path.is_file()), file)


def _baseline_accuracies(policy: Policy, name: str) -> Values:
    """Return the accuracies of a baseline as `train seal` wrote them. Raises RunError if its file
    is malformed."""
    accuracies: Values = []
    for part in policy.run_policies:
        file = accuracies_file(part.run.reports_folder)
        try:
            pairs = read_object(file).get(name, [])
            accuracies += [(str(passage), float(value)) for passage, value in pairs]
        except (TypeError, ValueError):
            raise RunError(f"{file}: {name}: expected pairs of a passage and a number") from None
    return accuracies


def _by_passage(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for group, value in values:
        groups.setdefault(group, []).append(value)
    return {group: fmean(group_values) for group, group_values in groups.items()}


def is_few_shot(section: Section, judge: str | None) -> bool:
    """Return True if the judge measures few-shot self-edits; False without a judge or its spec."""
    spec = judge_spec(section.policies, judge)
    return spec is not None and kind_of(spec).measures == "solutions"


def choice_table(section: Section, judge: str | None) -> Table | None:
    """Return the table of how often each policy's self-edits choose each tool, strategy, learning
    rate and number of epochs.

    Cells are shares of all its edits, with the count in brackets. None if the judge measures no
    few-shot edits or judged none.
    """
    if judge is None or not is_few_shot(section, judge):
        return None
    counted = [(policy.name, _choice_counts(policy, judge)) for policy in section.policies]
    counted = [(name, counts) for name, counts in counted if counts["edits"]]
    if not counted:
        return None
    rows = [
        (Cell(what), *(_choice_cell(counts, what) for _, counts in counted))
        for what in _choice_order(counts for _, counts in counted)
    ]
    columns = (
        Column("Self-edits that ask for", "Ask for", numeric=False),
        *(Column(name, name) for name, _ in counted),
    )
    notes = ("Shares of all self-edits of the policy; in brackets, how many.",)
    return Table("What self-edits ask for", columns, tuple(rows), notes, "choices")


def _choice_cell(counts: Mapping[str, int], what: str) -> Cell:
    if what == "edits":
        return Cell(str(counts["edits"]))
    return Cell(f"{counts[what] / counts['edits']:.2f} ({counts[what]})") if counts[what] else NONE


def _choice_counts(policy: Policy, judge: str) -> Counter[str]:
    """Return the number of a policy's edits by what they choose."""
    counts: Counter[str] = Counter()
    for row in policy.observations:
        scored = row.verdicts.get(judge)
        if scored is None or scored.failed:
            continue
        counts["edits"] += 1
        counts["not trained on"] += not scored.scores.get("trained", 1.0)
        counts.update(_edit_choices(scored.details.get("edit")))
    return counts


def _edit_choices(edit: Any) -> Iterator[str]:
    """Yield what one edit chooses. It is untrusted: anything malformed counts as no valid edit."""
    if not isinstance(edit, Mapping):
        yield "no valid edit"
        return
    tools = edit.get("tools")
    yield from (f"tools: {group}" for group in GROUPS if isinstance(tools, list) and group in tools)
    if edit.get("strategy") in STRATEGIES:
        yield _strategy_label(edit["strategy"])
    rate, epochs = edit.get("learning_rate"), edit.get("epochs")
    if isinstance(rate, int | float) and 0 < rate <= 1:
        yield _rate_label(math.floor(math.log10(rate) + 1e-9))
    if isinstance(epochs, int) and epochs > 0:
        yield _epochs_label(epochs)


def _strategy_label(name: str) -> str:
    return "loss on " + name.removeprefix("train_using_").replace("_", " ")


def _rate_label(power: int) -> str:
    return "rate 1" if power >= 0 else f"rate 1e{power} to 1e{power + 1}"


def _epochs_label(epochs: int) -> str:
    return f"epochs: {epochs}" if epochs < 4 else "epochs: 4 to 7" if epochs < 8 else "epochs: 8 on"


def _choice_order(all_counts: Iterator[Counter[str]]) -> list[str]:
    """Return the rows of the table: what at least one policy chooses, in a fixed order."""
    present = {what for counts in all_counts for what, count in counts.items() if count}
    fixed = [
        "edits",
        *(f"tools: {group}" for group in GROUPS),
        *map(_strategy_label, STRATEGIES),
        *(_rate_label(power) for power in range(-400, 1)),
        *(_epochs_label(n) for n in (1, 2, 3, 4, 8)),
        "no valid edit",
        "not trained on",
    ]
    return [what for what in fixed if what in present]
