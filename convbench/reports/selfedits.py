"""Self-edits (Zweiger et al. 2025, SEAL): their baselines as policies, and the forgetting matrix.

`train seal` writes `self-edits.json` into a run's folder of reports: what was trained on → pairs of
(passage, accuracy), and under `pretraining` and `sequences` what was measured over many passages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from convbench.errors import RunError
from convbench.judges.kinds import kind_of
from convbench.reports.document import Column, Row, Table
from convbench.reports.frame import Setting
from convbench.reports.policies import Policy
from convbench.store.shape import read_object

if TYPE_CHECKING:
    from pandas import DataFrame

Values = list[tuple[str, float]]
"""(passage, accuracy) of each adaptation."""
NOTHING, UNTRAINED = "nothing", "untrained self-edits"
PRETRAINING, SEQUENCES = "pretraining", "sequences"
CONTINUED = "continued pre-training"
"""One training on the edits of all passages at once: a setting of its own."""
OTHER = "self-edits of "
"""Begins the names of other models' edits."""


@dataclass(frozen=True)
class Lessons:
    """Accuracies of passages learnt one after the other."""

    after: tuple[tuple[float, ...], ...]
    """`after[i][j]` is the accuracy on passage j after edit i, for j <= i."""
    base: tuple[float, ...] = ()
    """Accuracies before the first edit."""


def with_self_edits(setting: Setting) -> Iterator[Setting]:
    """Yield a setting; of self-edits with what `train seal` measured beside them as policies, and a
    second setting if all passages were learnt at once.

    The policy of the run is then named by what is trained on, its untrained edits, and what was
    scored twice of one passage counts once in differences. Raise RunError for a malformed file.
    """
    judge = _judge(setting)
    own = next((policy for policy in setting.policies if policy.is_own), None)
    if judge is None or own is None:
        yield setting
        return
    stored = _stored(own)
    setting = _by_passage(setting, own)
    own = replace(own, name=UNTRAINED)
    known = {policy.name for policy in setting.policies}
    lines: dict[str, Values] = {NOTHING: _before(setting.rows_of(own), judge)}
    lines |= {n: v for (n, of), v in stored.items() if not of and _name(n, setting) not in known}
    yield _with_lines(setting, own, lines, judge)
    at_once = {_name(of, setting): v for (n, of), v in stored.items() if n == PRETRAINING}
    if at_once:
        args: Mapping[str, Any] = getattr(setting.judges[judge], "args", {})
        inner, pretraining = (args.get(name) or {} for name in ("inner", PRETRAINING))
        in_full = pretraining.get("tuning", inner.get("tuning")) == "full"
        more = CONTINUED + (", full" if in_full else "")
        empty = replace(setting, policies=(), rows=setting.rows.iloc[:0], more=more, notes=())
        yield _with_lines(empty, own, at_once, judge)


def _judge(setting: Setting) -> str | None:
    """Return the judge that adapts a policy to self-edits."""
    specs = {name: spec for name, spec in setting.judges.items() if spec is not None}
    adapts = ("adaptations", "solutions")
    return next((name for name, spec in specs.items() if kind_of(spec).measures in adapts), None)


FILE: TypeAdapter[Any] = TypeAdapter(dict[str, Values | dict[str, Values | list[Lessons]]])


def _stored(own: Policy) -> dict[tuple[str, str], list[Any]]:
    """Return what was measured by its key in the file, and the key within it, of all runs and files
    of a policy together."""
    stored: dict[tuple[str, str], list[Any]] = {}
    for run in own.runs:
        for file in sorted(run.reports_folder.glob("self-edits*.json")):
            try:
                found = FILE.validate_python(read_object(file))
            except ValidationError:
                raise RunError(
                    f"{file}: found a record of another shape; run train seal again"
                ) from None
            for name, value in found.items():
                for of, some in (value if isinstance(value, dict) else {"": value}).items():
                    stored.setdefault((name, of), []).extend(some)
    return stored


def _name(name: str, setting: Setting) -> str:
    """Return the name of the policy that a key of the file means, else the key."""
    for policy in setting.policies:
        is_round = policy.round is not None and name == f"round {policy.round}"
        if is_round or name == OTHER + policy.run.path.name:
            return policy.name
    return name


def _by_passage(setting: Setting, own: Policy) -> Setting:
    """Return the setting with passages as units, and its own policy named by its edits."""
    rows = setting.rows.assign(unit=setting.rows["group"])
    rows["policy"] = rows["policy"].replace({own.name: UNTRAINED})
    policies = tuple(replace(p, name=UNTRAINED) if p is own else p for p in setting.policies)
    return replace(setting, rows=rows, policies=policies)


def _before(rows: DataFrame, judge: str) -> Values:
    """Return the accuracy of the policy as it is, once a passage: what an edit reached less what it
    gained."""
    accuracy, gain = f"{judge}/accuracy", f"{judge}/gain"
    if accuracy not in rows:
        return []
    before = rows[accuracy] - rows.get(gain, 0.0)
    by_passage = before.groupby(rows["group"]).last().dropna()
    return [(str(passage), float(value)) for passage, value in by_passage.items()]


def _with_lines(setting: Setting, own: Policy, lines: Mapping[str, Values], judge: str) -> Setting:
    """Return the setting with a policy for each line, compared with untrained edits."""
    import pandas as pd

    measured = [
        {"policy": name, "unit": passage, "group": passage, f"{judge}/accuracy": value,
         f"{judge}/failed": 0.0, "failed": False, "flagged": False, "conversation_id": ""}
        for name, values in lines.items()
        for passage, value in values
    ]  # fmt: skip
    rows = pd.concat([setting.rows, pd.DataFrame(measured)], ignore_index=True)
    base = own.run.manifest.id
    added = {name: replace(own, name=name, base=base, planned=0, is_line=True) for name in lines}
    policies = added | {UNTRAINED: own} | {policy.name: policy for policy in setting.policies}
    known = tuple(policy for policy in policies.values() if policy.name in set(rows["policy"]))
    return replace(setting, policies=known, rows=rows.dropna(axis=1, how="all"))


def forgetting_sequences(setting: Setting) -> dict[str, list[Lessons]]:
    """Return the sequences of passages learnt one after the other, by what was trained on."""
    own = next((policy for policy in setting.policies if policy.name == UNTRAINED), None)
    if _judge(setting) is None or own is None or setting.more.startswith(CONTINUED):
        return {}
    return {_name(of, setting): v for (n, of), v in _stored(own).items() if n == SEQUENCES and v}


def mean_matrix(sequences: Sequence[Lessons]) -> list[list[float]]:
    """Return the mean accuracies after each edit, on the passages learnt until then; as many edits
    as the shortest sequence has."""
    size = min(len(sequence.after) for sequence in sequences)
    return [
        [fmean(sequence.after[i][j] for sequence in sequences) for j in range(i + 1)]
        for i in range(size)
    ]


def forgetting_table(name: str, sequences: Sequence[Lessons]) -> Table:
    """Return mean accuracies after each edit, a column for each passage in the order of the edits,
    then the mean over those seen so far."""
    lines = mean_matrix(sequences)
    size = len(lines)
    rows = []
    if all(len(sequence.base) >= size for sequence in sequences):
        base = [fmean(sequence.base[j] for sequence in sequences) for j in range(size)]
        rows.append(Row(("none", *base, fmean(base))))
    for number, values in enumerate(lines, 1):
        rows.append(Row((str(number), *values, *[None] * (size - number), fmean(values))))
    columns = (
        Column("edit", "after edit", "edit", text=True),
        *(Column(f"passage_{j + 1}", f"passage {j + 1}", str(j + 1), 2) for j in range(size)),
        Column("mean", "mean", digits=2),
    )
    earlier = fmean(lines[-1][:-1]) if size > 1 else lines[-1][0]
    notes = (
        f"Closed-book accuracy, mean over {len(sequences)} sequences; the diagonal is the passage "
        f"just learnt. Earlier passages after the last edit: {earlier:.3f}.",
    )
    return Table("forgetting", f"One passage after the other: {name}", columns, tuple(rows), notes)
