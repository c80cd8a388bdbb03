"""Tables of learning many passages, all at once or one after the other, and of how long one takes.

Zweiger et al. 2025 (SEAL): continued pre-training, and the forgetting matrix of their figure 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from convbench.errors import RunError
from convbench.judges.adaptation.accuracies import PASSAGE, UNTRAINED, Values
from convbench.judges.adaptation.passages import ForgettingSequence, mean_matrix, retained_accuracy
from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Figure, Table
from convbench.reports.policies import Policy, judge_spec, round_of
from convbench.reports.sections import Section
from convbench.reports.tables.adaptation import accuracies_file, taught_by, taught_table
from convbench.reports.tables.cells import decimal_cell, seconds_text
from convbench.schema import JudgeSpec
from convbench.stats.means import ErrorKind
from convbench.store.shape import read_object

PRETRAINING, SEQUENCES = "pretraining", "sequences"
"""Keys of `self-edits.json`: by training data, (passage, accuracy) pairs after one training on all
passages, and sequences of passages learnt one after the other."""
OTHER = "self-edits of "
"""Begins the names of other models' edits in `self-edits.json`."""
PRINTED_SECONDS = (30, 45)
"""Seconds of one adaptation in Zweiger et al. 2025, on H100 or H200."""

T = TypeVar("T")


def measures_passages(section: Section, judge: str | None) -> bool:
    """Return True if the judge measures adaptations to passages; False without a judge or its
    spec."""
    spec = judge_spec(section.policies, judge)
    return judge is not None and spec is not None and kind_of(spec).measures == "adaptations"


def pretrained_accuracies(section: Section, judge: str | None) -> dict[str, Values]:
    """Return (passage, accuracy) pairs after one training on all passages, by what was trained on,
    under the names of `adaptation_accuracies`; empty if none was measured.

    Raise RunError if `self-edits.json` is malformed.
    """
    return _pooled_measurements(section, judge, PRETRAINING, tuple[str, float])


def forgetting_sequences(
    section: Section, judge: str | None
) -> dict[str, list[ForgettingSequence]]:
    """Return the sequences of passages learnt one after the other, by what was trained on; empty
    if none was measured. Raise RunError if `self-edits.json` is malformed."""
    return _pooled_measurements(section, judge, SEQUENCES, ForgettingSequence)


def trains_all_weights(spec: JudgeSpec | None) -> bool:
    """Return True if an adaptation judge trains all weights, not adapters, on all passages at
    once."""
    args: Any = spec.args if spec is not None else {}
    inner, pretraining = (args.get(name) or {} for name in ("inner", PRETRAINING))
    return pretraining.get("tuning", inner.get("tuning")) == "full"


def _pooled_measurements(
    section: Section, judge: str | None, key: str, kind: type[T]
) -> dict[str, list[T]]:
    if section.base is None or not measures_passages(section, judge):
        return {}
    pooled: dict[str, list[T]] = {}
    for member in section.base.run_policies:
        file = accuracies_file(member.run.reports_folder)
        try:
            stored = TypeAdapter(dict[str, list[kind]]).validate_python(  # type: ignore[valid-type]
                read_object(file).get(key) or {}
            )
        except ValidationError:
            raise RunError(f"{file}: {key}: found a record of another shape") from None
        for name, values in stored.items():
            pooled.setdefault(_section_name(section, name), []).extend(values)
    return pooled


def _section_name(section: Section, name: str) -> str:
    """Return the section's name for a key of `self-edits.json`."""
    if name in (PASSAGE, UNTRAINED):
        return name
    for policy in section.policies:
        which = round_of(policy)
        is_round = which is not None and policy.recipe.get("filter") and name == f"round {which[1]}"
        if is_round or name == OTHER + policy.run.path.name:
            return taught_by(policy)
    return name


def pretraining_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the table of accuracies after one training on all passages at once; None if that was
    not measured."""
    accuracies = pretrained_accuracies(section, judge)
    if not accuracies:
        return None
    table = taught_table(accuracies, kind)
    in_full = trains_all_weights(judge_spec(section.policies, judge))
    notes = (
        "One training on the self-edits of all passages at once (continued pre-training) of "
        f"{'all weights' if in_full else 'adapters'}, then closed-book accuracy, mean ± standard "
        "error; differences paired by passage, Student's t over passages. All answers of a run "
        "come of one training, whose own variation the errors lack.",
        *table.notes[1:],
    )
    rows = tuple((*row[:-2], row[-1]) for row in table.rows)  # adaptations do not count here
    columns = (*table.columns[:-2], table.columns[-1])
    return Table("All passages at once", columns, rows, notes, "pretraining")


def forgetting_table(sequences: Sequence[ForgettingSequence], of: str = "") -> Table:
    """Return the table of mean accuracies (0 to 1) after each edit, a row for each edit, a column
    for each passage in the order of the edits, then the mean over those seen so far.

    If every sequence has accuracies from before the first edit, they come first, as row `none`.
    Sequences of different lengths are cut to the shortest. `of` names what was trained on. Raise
    ValueError without a sequence.
    """
    matrix = mean_matrix(sequences)
    size = len(matrix)
    rows: list[tuple[Cell, ...]] = []
    if all(sequence.base for sequence in sequences):
        base = [fmean(sequence.base[j] for sequence in sequences) for j in range(size)]
        rows.append(_matrix_row("none", base, size))
    rows += [_matrix_row(str(i + 1), values, size) for i, values in enumerate(matrix)]
    columns = (
        Column("after edit", "edit"),
        *(Column(f"passage {j + 1}", str(j + 1)) for j in range(size)),
        Column("mean", "mean"),
    )
    notes = (
        f"Closed-book accuracy on each passage after each edit, mean over {len(sequences)} "
        f"sequence{'s' * (len(sequences) != 1)}; the diagonal is the passage just learnt. Earlier "
        f"passages after the last edit: {retained_accuracy(matrix):.3f}.",
    )
    caption = "One passage after the other" + (f": {of}" if of else "")
    return Table(caption, columns, tuple(rows), notes, f"forgetting-{of.replace(' ', '-')}")


def _matrix_row(name: str, values: Sequence[float], size: int) -> tuple[Cell, ...]:
    cells = [decimal_cell(value, 2) for value in values] + [Cell("")] * (size - len(values))
    return Cell(name), *cells, decimal_cell(fmean(values), 2)


def forgetting_tables(section: Section, judge: str | None) -> Iterator[Table]:
    """Yield the table of each kind of sequences that were measured."""
    for name, sequences in forgetting_sequences(section, judge).items():
        yield forgetting_table(sequences, name)


def time_table(section: Section, judge: str | None) -> Table | None:
    """Return the table of the seconds that one adaptation took, a row for each policy, and for
    passages the printed time; None if the judge recorded none."""
    spec = judge_spec(section.policies, judge)
    if judge is None or spec is None or kind_of(spec).measures not in ("adaptations", "solutions"):
        return None
    seconds = {policy.name: adaptation_seconds(policy, judge) for policy in section.policies}
    rows = [_time_row(name, values) for name, values in seconds.items() if values]
    if not rows:
        return None
    if measures_passages(section, judge):
        low, high = PRINTED_SECONDS
        printed = ("  Zweiger et al. 2025, printed", "-", f"{low} to {high}", "-")
        rows.append(tuple(Cell(text, quiet=True) for text in printed))
    columns = (
        Column("Edits of", "Edits of", numeric=False),
        Column("adaptations", "adapt."),
        Column("seconds, mean", "mean s"),
        Column("seconds, 95th percentile", "95th s"),
    )
    notes = (
        "One adaptation: training on an edit with every seed, then its questions, as measured by "
        "the judge where it ran. An adaptation that was reused counts with the time it took.",
        "Printed: about 30 to 45 seconds an edit, with H100 or H200 GPUs.",
    )[: 1 + measures_passages(section, judge)]
    return Table("Time of an adaptation", columns, tuple(rows), notes, "adaptation-time")


def adaptation_seconds(policy: Policy, judge: str) -> list[float]:
    """Return the seconds of each adaptation that was trained, as the verdicts have them."""
    scored = (row.verdicts.get(judge) for row in policy.observations)
    details = (verdict.details for verdict in scored if verdict is not None and not verdict.failed)
    taken = (each.get("seconds") for each in details if not each.get("reason"))
    return [float(x) for x in taken if isinstance(x, int | float) and 0 < x < math.inf]


def _time_row(name: str, seconds: Sequence[float]) -> tuple[Cell, ...]:
    ordered = sorted(seconds)
    late = ordered[math.ceil(0.95 * len(ordered)) - 1]  # the smallest that 95 % do not exceed
    cells = (
        Cell(seconds_text(x), figure=Figure(x, n=len(ordered))) for x in (fmean(ordered), late)
    )
    return Cell(name), Cell(str(len(ordered))), *cells
