"""One frame a report: a row for each conversation with its scores, from the views of `query`.

Two runs of one task, each with a learner, read on split test:

    >>> (setting,) = read_settings([llama, qwen], "test")
    >>> setting.title
    'arc · thinking · reasoning, n = 3'
    >>> [(policy.name, setting.base_of(policy)) for policy in setting.policies]
    [('SWiFt (llama)', 'Base (llama)'), ('Base (llama)', None), ('SWiFt (qwen)', 'Base (qwen)'), …]
    >>> setting.rows[["policy", "unit", "group", "correct", "words", "gpt-4o/overall"]]
           policy        unit    group  correct  words  gpt-4o/overall
    0  SWiFt (llama)  0/q1#0@1     q1      1.0    214             7.0
    1  SWiFt (llama)  0/q1#1@1     q1      0.0    198             NaN

A column is a number for each conversation and nan where there is none: failed conversations and
those that cannot be graded have no `correct`, an answer that could not be read counts as wrong and
has `unread` 1. `unit` pairs a conversation with another policy's: seed, question, sample and
temperature. `group` is the independent unit of errors: question, dialogue or passage.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from convbench.errors import RunError
from convbench.reports import comparable
from convbench.reports.policies import (
    Policy,
    in_order,
    read_policy,
    with_bases,
    with_unique_names,
)
from convbench.reports.published import method_order
from convbench.schema import JudgeSpec, RunManifest
from convbench.stats.estimates import ErrorKind, Estimate, estimate
from convbench.store import Run
from convbench.store.tables import connect_runs
from convbench.views import can_hear

if TYPE_CHECKING:
    from pandas import DataFrame

CONVERSATIONS = """
SELECT COLUMNS('^(run|conversation_id|example_id|split|sample|temperature|read_by)$'),
  CASE WHEN failure IS NULL THEN words END AS words, coalesce(group_id, example_id) AS "group",
  failure IS NOT NULL AS failed, correct::DOUBLE AS correct,
  CASE WHEN correct IS NULL THEN NULL ELSE (answer IS NULL)::DOUBLE END AS unread,
  thinking::DOUBLE AS thinking, reasoned::DOUBLE AS reasoned, len(flags) > 0 AS flagged
FROM conversations
"""
VERDICTS = "SELECT run, conversation_id, judge, failure IS NOT NULL AS failed, reward FROM verdicts"
SCORES = """
SELECT run, conversation_id, judge || '/' || unnest(map_keys(scores)) AS metric,
  unnest(map_values(scores)) AS score
FROM verdicts WHERE failure IS NULL
"""
MARKS = """
SELECT DISTINCT r.run, v.judge, v.fingerprint FROM raw.verdicts v JOIN raw.runs r USING (run_no)
"""


Simulators = tuple[tuple[str, str, str], ...]
"""(speaker, model, settings) of each simulated human."""


@dataclass(frozen=True)
class Setting:
    """Policies that may be compared in one table, with the rows of their conversations."""

    task: str
    mode: str
    protocol: str
    turns: int
    split: str
    policies: tuple[Policy, ...]
    rows: DataFrame
    judges: Mapping[str, JudgeSpec | None] = field(default_factory=dict)
    """Judges with a verdict on these conversations, with their spec if a run holds it."""
    notes: tuple[str, ...] = ()
    more: str = ""
    """What else tells the setting from another, e.g. its simulated human."""

    @property
    def title(self) -> str:
        """Return one line: `task · mode · protocol, n = turns`, and what else tells it apart."""
        also = f", {self.more}" if self.more else ""
        return f"{self.task} · {self.mode} · {self.protocol}, n = {self.turns}{also}"

    @property
    def runs(self) -> list[Run]:
        """Return the runs of all policies."""
        return list({r.manifest.id: r for p in self.policies for r in p.runs}.values())

    def base_of(self, policy: Policy) -> Policy | None:
        """Return the policy that another one is compared with; None for a base."""
        known = (p for p in self.policies if not p.is_line)
        return next((p for p in known if policy.base in {r.manifest.id for r in p.runs}), None)

    def rows_of(self, policy: Policy) -> DataFrame:
        """Return the rows of one policy, failed conversations included."""
        return self.rows[self.rows["policy"] == policy.name]

    def mean(
        self, policy: Policy, column: str, kind: ErrorKind = "clustered", scale: float = 1.0
    ) -> Estimate | None:
        """Return the mean of a column over a policy's conversations; None without a number."""
        if column not in self.rows:
            return None
        return mean_of(self._values(policy, column), column, kind, scale)

    def _values(self, policy: Policy, column: str) -> DataFrame:
        """Return unit, group and one column of a policy's rows."""
        return self.rows.loc[self.rows["policy"] == policy.name, ["unit", "group", column]]

    def difference(
        self,
        policy: Policy,
        base: Policy,
        column: str,
        kind: ErrorKind = "clustered",
        scale: float = 1.0,
    ) -> Estimate | None:
        """Return the mean of a policy's values minus its base's, paired by question, sample and
        temperature; several values of one pair count with their mean. None without a pair."""
        if column not in self.rows:
            return None
        ours, theirs = (_by_unit(self._values(each, column), column) for each in (policy, base))
        both = ours.merge(theirs, left_index=True, right_index=True, suffixes=("", "_base"))
        change = (both["value"] - both["value_base"]) * scale
        return estimate(both["group"], change, kind)


def mean_of(
    rows: DataFrame, column: str, kind: ErrorKind = "clustered", scale: float = 1.0
) -> Estimate | None:
    """Return the mean of a column of rows, times `scale`; None without a number."""
    return None if column not in rows else estimate(rows["group"], rows[column] * scale, kind)


def _by_unit(rows: DataFrame, column: str) -> DataFrame:
    known = rows[rows[column].notna()].rename(columns={column: "value"})
    if known["unit"].is_unique:
        return known.set_index("unit")
    return known.groupby("unit", sort=False).agg(group=("group", "first"), value=("value", "mean"))


def read_settings(
    runs: Sequence[Run], split: str = "test", *, allow: bool = False, skip_empty: bool = False
) -> list[Setting]:
    """Return the settings of these runs and their evaluations, in the order of the runs.

    A setting has one task, mode, protocol, number of turns and simulated human. Runs that differ in
    the seed alone are pooled. Raise NotComparable, which names the difference, for policies that
    are not comparable; with `allow` it becomes a note. Raise RunError for a run without
    conversations of the split, unless these are skipped, and for damaged records.
    """
    return settings_of(_families(runs), split, allow=allow, skip_empty=skip_empty)


def settings_of(
    families: Sequence[Sequence[Run]],
    split: str,
    *,
    allow: bool = False,
    skip_empty: bool = False,
) -> list[Setting]:
    """Return the settings of these families: lists of a run and evaluations beside it."""
    rows, marks = read_rows([run for family in families for run in family])
    if split != "all":
        rows = rows[rows["split"] == split]
    spoken = set(rows["run"].unique())
    grouped: dict[tuple[Any, ...], dict[Simulators, list[list[Policy]]]] = {}
    for family in families:
        own = family[0]
        policies = [
            replace(
                read_policy(run, own if run is not own else None),
                judges=marks.get(run.manifest.id, {}),
                planned=_planned(run, split, rows),
            )
            for run in family
            if run.manifest.id in spoken
        ]
        if policies:
            m = own.manifest
            key = (m.task.name, m.mode, m.protocol.name, m.turns)
            grouped.setdefault(key, {}).setdefault(_simulators(m), []).append(with_bases(policies))
        elif not skip_empty:
            raise RunError(
                f"{own.path}: found no conversations of split {split}{_help(own, split)}"
            )
    return [
        _setting(key, split, part, rows, allow, _simulator_name(human) if len(some) > 1 else "")
        for key, some in grouped.items()
        for human, part in some.items()
    ]


def read_rows(runs: Sequence[Run]) -> tuple[DataFrame, dict[str, dict[str, frozenset[str]]]]:
    """Return a frame with a row for each conversation of these runs, and the fingerprints of their
    verdicts by run and judge.

    Of a judge there are the columns `JUDGE/METRIC`, `JUDGE/reward` and `JUDGE/failed` (1 for a
    failed verdict, 0 for scores). Raise RunError for a damaged record.
    """
    import pandas as pd

    views = ("conversations", "verdicts")
    rows, verdicts, scores, listed = ask(runs, views, CONVERSATIONS, VERDICTS, SCORES, MARKS)
    rows["unread_first"] = rows["unread"]
    if "read_by" in rows:
        rows.loc[rows["read_by"].notna() & rows["unread"].notna(), "unread_first"] = 1.0
    keys = ["run", "conversation_id"]
    for column in ("failed", "reward"):
        name = verdicts["judge"] + "/" + column
        more = verdicts.assign(metric=name, score=verdicts[column].astype(float))
        scores = pd.concat([scores, more[[*keys, "metric", "score"]]])
    scores = scores.drop_duplicates([*keys, "metric"])
    wide = scores.pivot(index=keys, columns="metric", values="score").reset_index()
    rows = rows.merge(wide, on=keys, how="left")
    marks: dict[str, dict[str, frozenset[str]]] = {}
    for run, judge, mark in listed.itertuples(index=False):
        of_run = marks.setdefault(run, {})
        of_run[judge] = of_run.get(judge, frozenset()) | {mark}
    return rows, marks


def ask(runs: Sequence[Run], views: Sequence[str], *statements: str) -> list[DataFrame]:
    """Return the rows of SQL statements over some views of `query`. Raise RunError for a damaged
    record."""
    connection = connect_runs(runs, views)
    try:
        return [connection.execute(statement).df() for statement in statements]
    finally:
        connection.close()


def _families(runs: Sequence[Run]) -> list[list[Run]]:
    """Return each run with its evaluations; one that is listed with its parent joins it."""
    by_id = {run.manifest.id: run for run in runs}
    families = []
    for run in by_id.values():
        if run.manifest.parent in by_id:
            continue
        listed = [r for r in by_id.values() if r.manifest.parent == run.manifest.id]
        children = {child.manifest.id: child for child in [*run.child_runs(), *listed]}
        families.append([run, *children.values()])
    return families


def _planned(run: Run, split: str, rows: DataFrame) -> int:
    """Return how many conversations of a split a run is to have, at least those it has."""
    counts = Counter(q.split for q in run.questions.values() if split in ("all", q.split))
    return max(run.manifest.planned_count(counts), int((rows["run"] == run.manifest.id).sum()))


def _help(run: Run, split: str) -> str:
    """Return which splits a run has conversations of, or what to do about missing ones."""
    questions = run.examples
    spoken = Counter(questions[talk.example_id].split for talk in run.conversation_rows())
    other = "".join(f"; it has {count} of {name}: --split {name}" for name, count in spoken.items())
    if run.manifest.kind != "import" and split in {q.split for q in questions.values()} | {"all"}:
        return f"; build them: convbench build --run {shlex.quote(str(run.path))}{other}"
    return f", nor questions of it{other}" if questions else other


def _simulator_name(human: Simulators) -> str:
    return "simulator " + (" and ".join(dict.fromkeys(model for _, model, _ in human)) or "nobody")


def _simulators(manifest: RunManifest) -> Simulators:
    """Return (speaker, model, settings) of each other speaker that the policy hears and that says
    more than scripted words."""
    protocol = manifest.protocol
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    return tuple(
        (name, member.model, f"{member.sampling.model_dump_json()} {member.fingerprint}")
        for name in sorted(spoken - {protocol.policy})
        if can_hear(protocol, protocol.policy, name) and (member := manifest.cast.get(name))
    )


def _identity(policy: Policy) -> str:
    """Return the fingerprint of the weights of a run's policy, else its model."""
    member = policy.run.manifest.policy_member
    return member.fingerprint or member.model


def _setting(
    key: tuple[str, str, str, int],
    split: str,
    families: Sequence[list[Policy]],
    rows: DataFrame,
    allow: bool,
    more: str,
) -> Setting:
    notes = list(_check([policy for family in families for policy in family], split, allow))
    pools: list[list[list[Policy]]] = []
    for family in families:
        pool = next((pool for pool in pools if _differ_in_seed(pool, family)), None)
        if pool is None:
            pools.append([family])
        else:
            pool.append(family)
    labels = method_order()
    policies = [policy for pool in pools for policy in in_order(_pooled(pool), labels)]
    if any(len(pool) > 1 for pool in pools):
        notes.append(
            f"Pooled over {max(map(len, pools))} seeds: a question drawn in several of them is one "
            "group; errors ignore that conversations of one training share a checkpoint."
        )
    policies = with_unique_names(policies)
    notes += [policy.note for policy in policies if policy.note]
    judges = {
        judge: _spec(policies, judge)
        for judge in dict.fromkeys(name for policy in policies for name in policy.judges)
    }
    own = _own_rows(policies, rows)
    judges = {name: spec for name, spec in judges.items() if f"{name}/failed" in own}
    return Setting(*key, split, tuple(policies), own, judges, tuple(dict.fromkeys(notes)), more)


def _check(policies: Sequence[Policy], split: str, allow: bool) -> Iterator[str]:
    """Yield notes on policies that are not comparable with the first run's own (else the first), or
    raise NotComparable unless that is allowed."""
    first = next((policy for policy in policies if policy.is_own), policies[0])
    for policy in policies:
        near = next((p for p in policies if p.family == policy.family and p.is_own), policy)
        problems = comparable.mixed_judges(policy)
        if policy is not first:
            problems += comparable.differences(first, policy)
        beside = first if policy.seed == first.seed else near
        problems += comparable.question_differences(beside.run, policy.run, split)
        if problems and not allow:
            raise comparable.refuse(first, policy, problems)
        if problems:
            yield f"{policy.name} is not comparable with {first.name}: {'; '.join(problems)}."
        if comparable.has_own_protocol(policy):
            name = policy.run.manifest.protocol.name
            yield f"{policy.name} was evaluated in protocol {name}, as its recipe asks."


def _differ_in_seed(pool: Sequence[list[Policy]], family: Sequence[Policy]) -> bool:
    """Return whether a family is of the same model as those of a pool, with a seed of its own."""
    seeds = {other[0].seed for other in pool}
    return _identity(pool[0][0]) == _identity(family[0]) and family[0].seed not in seeds


def _pooled(pool: Sequence[list[Policy]]) -> list[Policy]:
    """Return the policies of several seeds, those of one name and folder joined into one."""
    joined: dict[tuple[str, str], list[Policy]] = {}
    for policy in (policy for family in pool for policy in family):
        folder = "" if policy.is_own else policy.run.path.name
        joined.setdefault((policy.name, folder), []).append(policy)
    return [
        replace(
            members[0],
            runs=tuple(run for member in members for run in member.runs),
            seeds=tuple(seed for member in members for seed in member.seeds),
            trainings=tuple(training for member in members for training in member.trainings),
            planned=sum(member.planned for member in members),
        )
        for members in joined.values()
    ]


def _own_rows(policies: Sequence[Policy], rows: DataFrame) -> DataFrame:
    """Return the rows of these policies with `policy`, `seed`, `unit`, without empty columns."""
    import pandas as pd

    parts = []
    for policy in policies:
        for run, seed in zip(policy.runs, policy.seeds, strict=True):
            own = rows[rows["run"] == run.manifest.id]
            asked = own["temperature"].fillna(own["sample"].map(run.manifest.temperature_of))
            question = f"{seed}/" + own["example_id"] + "#" + own["sample"].astype(str)
            unit = question + "@" + asked.map("{:g}".format)
            parts.append(own.assign(policy=policy.name, seed=seed, unit=unit))
    joined: DataFrame = pd.concat(parts, ignore_index=True)
    return joined.dropna(axis="columns", how="all")


def _spec(policies: Iterable[Policy], judge: str) -> JudgeSpec | None:
    """Return a judge's spec as stored with the first run that has one."""
    for policy in policies:
        for run in policy.runs:
            specs = run.judge_specs()
            for mark in sorted(policy.judges.get(judge, ())):
                if mark in specs:
                    return specs[mark]
    return None


def find_policies(settings: Sequence[Setting], typed: str, option: str) -> list[str]:
    """Return the names of the policies that a user means: by name in any case, recipe or folder.

    Raise RunError if there is none.
    """
    policies = [policy for setting in settings for policy in setting.policies]
    meant = [p.name for p in policies if typed.casefold() in p.aliases()]
    if not meant:
        names = ", ".join(dict.fromkeys(policy.name for policy in policies))
        raise RunError(f"{option} {typed}: found no such policy; expected one of {names}")
    return list(dict.fromkeys(meant))
