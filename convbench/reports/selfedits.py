"""Self-edits (Zweiger et al. 2025, SEAL): their baselines as policies, and the forgetting matrix.

`train seal` writes `self-edits.json` into a run's folder of reports: what was trained on → pairs of
(passage, accuracy), and under `pretraining` and `sequences` what was measured over many passages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from convbench.judges.kinds import kind_of
from convbench.reports.document import Column, Row, Table
from convbench.reports.frame import Setting
from convbench.reports.policies import Policy
from convbench.store.shape import read_object

Values = list[tuple[str, float]]
"""(passage, accuracy) of each adaptation."""
NOTHING, UNTRAINED = "nothing", "untrained self-edits"
PRETRAINING, SEQUENCES = "pretraining", "sequences"
CONTINUED = "continued pre-training"
"""One training on the edits of all passages at once: a setting of its own."""


class Lessons(NamedTuple):
    """Accuracies of passages learnt one after the other: `after[i][j]` on passage j after edit i,
    for j <= i, and those before the first edit."""

    after: Sequence[Sequence[float]]
    base: Sequence[float] = ()


def with_self_edits(setting: Setting) -> Iterator[Setting]:
    """Yield a setting; of self-edits with what `train seal` measured beside them as policies, and a
    second setting if all passages were learnt at once.

    The policy of the run is then named by its untrained edits, and what was scored twice of one
    passage counts once in differences.
    """
    judge = _judge(setting)
    own = next((policy for policy in setting.policies if policy.is_own), None)
    if judge is None or own is None:
        yield setting
        return
    stored = _stored(own)
    rows = setting.rows.assign(unit=setting.rows["group"])
    rows["policy"] = rows["policy"].replace({own.name: UNTRAINED})
    policies = tuple(replace(p, name=UNTRAINED) if p is own else p for p in setting.policies)
    setting, own = replace(setting, rows=rows, policies=policies), replace(own, name=UNTRAINED)
    known = {policy.name for policy in policies}
    scored = setting.rows_of(own).reindex(columns=["group", f"{judge}/accuracy", f"{judge}/gain"])
    # Of the policy as it is: what an edit reached less what it gained, once a passage.
    before = scored[f"{judge}/accuracy"] - scored[f"{judge}/gain"].fillna(0.0)
    lines: dict[str, Values] = {NOTHING: [*before.groupby(scored["group"]).last().dropna().items()]}
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


def _stored(own: Policy) -> dict[tuple[str, str], list[Any]]:
    """Return what all files of a policy measured, by its key and the key within it."""
    stored: dict[tuple[str, str], list[Any]] = {}
    files = (file for run in own.runs for file in run.reports_folder.glob("self-edits*.json"))
    for name, value in (item for file in sorted(files) for item in read_object(file).items()):
        for of, some in (value if isinstance(value, dict) else {"": value}).items():
            stored.setdefault((name, of), []).extend(some)
    return stored


def _name(name: str, setting: Setting) -> str:
    """Return the name of the policy that a key of the file means, else the key."""
    for policy in setting.policies:
        is_round = policy.round is not None and name == f"round {policy.round}"
        if is_round or name == f"self-edits of {policy.run.path.name}":
            return policy.name
    return name


def _with_lines(setting: Setting, own: Policy, lines: Mapping[str, Values], judge: str) -> Setting:
    """Return the setting with a policy for each line, compared with untrained edits."""
    import pandas as pd

    rest = {f"{judge}/failed": 0.0, "failed": False, "flagged": False, "conversation_id": ""}
    measured = [
        {"policy": name, "unit": passage, "group": passage, f"{judge}/accuracy": value} | rest
        for name, values in lines.items()
        for passage, value in values
    ]
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
    stored = {of: some for (name, of), some in _stored(own).items() if name == SEQUENCES and some}
    return {
        _name(of, setting): [Lessons(each["after"], each.get("base", ())) for each in some]
        for of, some in stored.items()
    }


def mean_matrix(sequences: Sequence[Lessons]) -> list[list[float]]:
    """Return the mean accuracies after each edit; as many edits as the shortest sequence has."""
    edits = zip(*(sequence.after for sequence in sequences), strict=False)
    return [[fmean(on) for on in zip(*after, strict=True)] for after in edits]


def forgetting_table(name: str, sequences: Sequence[Lessons]) -> Table:
    """Return mean accuracies after each edit, a column a passage, then the mean so far."""
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
