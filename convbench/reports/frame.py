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
has `unread` 100; `unread`, `thinking` and `reasoned` are percent. `unit` pairs a conversation with
another policy's: seed, question, sample and temperature. `group` is the independent unit of errors:
question, dialogue or passage.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from convbench.errors import RunError
from convbench.reports import comparable
from convbench.reports.policies import Policy, read_policy, with_bases, with_unique_names
from convbench.reports.published import method_order
from convbench.schema import JudgeSpec, RunManifest
from convbench.stats.estimates import ErrorKind, Estimate, estimate
from convbench.store import Run
from convbench.store.tables import connect_runs
from convbench.views import can_hear

if TYPE_CHECKING:
    from pandas import DataFrame

CONVERSATIONS = """
SELECT run, conversation_id, example_id, split, sample, temperature, read_by,
  CASE WHEN failure IS NULL THEN words END AS words, coalesce(group_id, example_id) AS "group",
  failure IS NOT NULL AS failed, len(flags) > 0 AS flagged, correct::DOUBLE AS correct,
  CASE WHEN correct IS NOT NULL THEN 100.0 * (answer IS NULL)::INT END AS unread,
  CASE WHEN correct IS NOT NULL THEN 100.0 * (answer IS NULL OR read_by IS NOT NULL)::INT END
    AS unread_first,
  100.0 * thinking::INT AS thinking, 100.0 * reasoned::INT AS reasoned
FROM conversations
"""
SCORES = """
WITH scored AS (
  SELECT run, conversation_id, judge, unnest(map_keys(scores)) AS metric,
    unnest(map_values(scores)) AS score FROM verdicts WHERE failure IS NULL
)
FROM scored WHERE metric NOT IN ('failed', 'reward')
UNION ALL SELECT run, conversation_id, judge, 'reward', reward FROM verdicts
UNION ALL SELECT run, conversation_id, judge, 'failed', (failure IS NOT NULL)::INT FROM verdicts
"""
MARKS = """
SELECT r.run, v.judge, list(DISTINCT v.fingerprint)
FROM raw.verdicts v JOIN raw.runs r USING (run_no) GROUP BY ALL
"""


@dataclass(frozen=True)
class Setting:
    """Policies that may be compared in one table, with the rows of their conversations."""

    task: str
    mode: str
    protocol: str
    turns: int
    split: str
    kind: ErrorKind
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

    def mean(self, policy: Policy, column: str) -> Estimate | None:
        """Return the mean of a column over a policy's conversations; None without a number."""
        return mean_of(self.rows_of(policy), column, self.kind)

    def difference(self, policy: Policy, base: Policy, column: str) -> Estimate | None:
        """Return the mean of a policy's values minus its base's, by unit; None without a pair."""
        if column not in self.rows:
            return None
        both = paired(self.rows_of(policy), self.rows_of(base), column)
        return estimate(both["group"], both[column] - both[f"{column}_base"], self.kind)


def mean_of(rows: DataFrame, column: str, kind: ErrorKind = "clustered") -> Estimate | None:
    """Return the mean of a column of rows; None without a number."""
    return None if column not in rows else estimate(rows["group"], rows[column], kind)


def paired(ours: DataFrame, theirs: DataFrame, column: str, *more: str) -> DataFrame:
    """Return `group` and these columns of ours, and with `_base` behind their names of theirs, for
    each unit of which both have numbers in the first; several of a unit count with their mean."""
    means = dict.fromkeys((column, *more), "mean")
    first, second = (
        rows[rows[column].notna()].groupby("unit", sort=False).agg({"group": "first", **means})
        for rows in (ours, theirs)
    )
    return first.merge(second, left_index=True, right_index=True, suffixes=("", "_base"))


def read_settings(
    runs: Sequence[Run],
    split: str = "test",
    *,
    kind: ErrorKind = "clustered",
    allow: bool = False,
    skip_empty: bool = False,
    alone: bool = False,
) -> list[Setting]:
    """Return the settings of these runs and, unless `alone`, their evaluations, in the order of the
    runs.

    A setting has one task, mode, protocol, number of turns and simulated human; runs that differ in
    the seed alone are pooled. Raise NotComparable, which with `allow` is a note, and RunError for a
    run without conversations of the split, unless these are skipped, and for damaged records.
    """
    families = _families(runs, alone)
    rows, marks = read_rows([run for family in families for run in family])
    rows = rows if split == "all" else rows[rows["split"] == split]
    counts = rows["run"].value_counts().to_dict()
    grouped: dict[tuple[Any, ...], list[list[Policy]]] = {}
    for family in families:
        policies = []
        for run in (run for run in family if run.manifest.id in counts):
            asked = Counter(q.split for q in run.questions.values() if split in ("all", q.split))
            planned = max(run.manifest.planned_count(asked), counts[run.manifest.id])
            judges = marks.get(run.manifest.id, {})
            policies.append(read_policy(run, judges=judges, planned=planned))
        m = family[0].manifest
        if policies:
            key = (m.task.name, m.mode, m.protocol.name, m.turns, _humans(m))
            grouped.setdefault(key, []).append(with_bases(policies))
        elif not skip_empty:
            raise RunError(_nothing_of(family[0], split))
    alike = Counter(key[:4] for key in grouped)
    settings = []
    for key, some in grouped.items():
        task, mode, protocol, turns, human = key
        more = human if alike[key[:4]] > 1 else ""
        empty = Setting(task, mode, protocol, turns, split, kind, (), rows, more=more)
        settings.append(_setting(empty, some, allow))
    return settings


def read_rows(runs: Sequence[Run]) -> tuple[DataFrame, dict[str, dict[str, frozenset[str]]]]:
    """Return a row for each conversation of these runs, and the fingerprints of their verdicts by
    run and judge. Raise RunError for a damaged record.

    Of a judge there are the columns `JUDGE/METRIC`, `JUDGE/reward` and `JUDGE/failed` (1 or 0).
    """
    rows, scores, listed = ask(runs, ("conversations", "verdicts"), CONVERSATIONS, SCORES, MARKS)
    scores["column"] = scores["judge"] + "/" + scores["metric"]
    keys = ["run", "conversation_id"]
    wide = scores.pivot(index=keys, columns="column", values="score")
    marks: dict[str, dict[str, frozenset[str]]] = {}
    for run, judge, found in listed.itertuples(index=False):
        marks.setdefault(run, {})[judge] = frozenset(found)
    return rows.join(wide, on=keys), marks


def ask(runs: Sequence[Run], views: Sequence[str], *statements: str) -> list[DataFrame]:
    """Return the rows of SQL statements over views of `query`; RunError for a damaged record."""
    connection = connect_runs(runs, views)
    try:
        return [connection.execute(statement).df() for statement in statements]
    finally:
        connection.close()


def _families(runs: Sequence[Run], alone: bool) -> list[list[Run]]:
    """Return each run with its evaluations; one that is listed with its parent joins it."""
    by_id = {run.manifest.id: run for run in runs}
    families: dict[str, dict[str, Run]] = {}
    for run in by_id.values():
        # A run stands before its evaluations, in whichever order they are listed.
        above = by_id.get(run.manifest.parent or "", run)
        for each in (above, run, *([] if alone else run.child_runs())):
            families.setdefault(above.manifest.id, {})[each.manifest.id] = each
    return [list(family.values()) for family in families.values()]


def _nothing_of(run: Run, split: str) -> str:
    splits = {name: question.split for name, question in run.questions.items()}
    spoken = Counter(splits[talk.example_id] for talk in run.conversation_rows())
    other = "".join(f"; it has {count} of {name}: --split {name}" for name, count in spoken.items())
    can_build = run.manifest.kind != "import" and split in splits.values()
    build = f"; build them: convbench build --run {shlex.quote(str(run.path))}" if can_build else ""
    return f"{run.path}: found no conversations of split {split}{build}{other}"


def _humans(manifest: RunManifest) -> str:
    """Return who the policy hears beside scripted words, as `simulator MODEL`."""
    protocol = manifest.protocol
    spoken = {step.speaker for step in protocol.all_steps() if step.say is None}
    heard = [
        manifest.cast[name].model
        for name in sorted(spoken - {protocol.policy})
        if can_hear(protocol, protocol.policy, name) and name in manifest.cast
    ]
    return "simulator " + (" and ".join(dict.fromkeys(heard)) or "nobody")


def _setting(empty: Setting, families: Sequence[list[Policy]], allow: bool) -> Setting:
    """Return a setting, of which `empty` has the rows of all settings, with its policies."""
    every = [policy for family in families for policy in family]
    notes = list(_check(every, empty.split, allow))
    pools: dict[tuple[str, int], dict[tuple[str, str], list[Policy]]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for family in families:
        # A family joins others of its model; of those with one seed each is in a pool of its own.
        member, seed = family[0].run.manifest.policy_member, family[0].run.manifest.seed
        model = member.fingerprint or member.model
        pool = pools.setdefault((model, seen[model, seed]), {})
        seen[model, seed] += 1
        for policy in family:
            folder = "" if policy.is_own else policy.run.path.name
            pool.setdefault((policy.name, folder), []).append(policy)
    if len(pools) < len(families):
        notes.append(
            "Pooled over seeds: a question drawn in several of them is one group; errors ignore "
            "that conversations of one training share a checkpoint."
        )
    rank = {name: place for place, name in enumerate(method_order())}
    pooled: list[Policy] = []
    for pool in pools.values():
        joined = []
        for members in pool.values():
            runs = tuple(member.run for member in members)
            trainings = tuple(training for member in members for training in member.trainings)
            planned = sum(member.planned for member in members)
            joined.append(replace(members[0], runs=runs, trainings=trainings, planned=planned))
        # As papers print them, then by name, rounds by their number.
        pooled += sorted(
            joined, key=lambda p: (rank.get(p.name, len(rank)), p.learner, p.round or 0, p.name)
        )
    policies = with_unique_names(pooled)
    notes += [policy.note for policy in policies if policy.note]
    rows = _own_rows(policies, empty.rows)
    specs = {mark: spec for policy in every for mark, spec in policy.run.judge_specs().items()}
    judges: dict[str, JudgeSpec | None] = {}
    for judge, marks in (item for policy in policies for item in policy.judges.items()):
        if f"{judge}/failed" in rows:
            found = (specs[mark] for mark in sorted(marks) if mark in specs)
            judges[judge] = judges.get(judge) or next(found, None)
    said = tuple(dict.fromkeys(notes))
    return replace(empty, policies=tuple(policies), rows=rows, judges=judges, notes=said)


def _check(policies: Sequence[Policy], split: str, allow: bool) -> Iterator[str]:
    """Yield notes on policies that are not comparable with the first run's own, or raise that."""
    first = next((policy for policy in policies if policy.is_own), policies[0])
    for policy in policies:
        problems = comparable.differences(first, policy)
        near = next((p for p in policies if p.family == policy.family and p.is_own), policy)
        beside = first if policy.run.manifest.seed == first.run.manifest.seed else near
        problems += comparable.question_differences(beside.run, policy.run, split)
        if problems and not allow:
            raise comparable.NotComparable(
                f"{policy.name} ({policy.run.path}) and {first.name} ({first.run.path}) are not "
                f"comparable: {'; '.join(problems)}. Report them separately, or add "
                "--allow-incomparable to compare them in one table anyway"
            )
        if problems:
            yield f"{policy.name} is not comparable with {first.name}: {'; '.join(problems)}."
        if comparable.has_own_protocol(policy):
            name = policy.run.manifest.protocol.name
            yield f"{policy.name} was evaluated in protocol {name}, as its recipe asks."


def _own_rows(policies: Sequence[Policy], rows: DataFrame) -> DataFrame:
    """Return the rows of these policies with `policy`, `seed`, `unit`, without empty columns."""
    import pandas as pd

    parts = []
    for run, name in ((run, policy.name) for policy in policies for run in policy.runs):
        own, seed = rows[rows["run"] == run.manifest.id], run.manifest.seed
        asked = own["temperature"].fillna(own["sample"].map(run.manifest.temperature_of))
        question = f"{seed}/" + own["example_id"] + "#" + own["sample"].astype(str)
        unit = question + "@" + asked.map("{:g}".format)
        parts.append(own.assign(policy=name, seed=seed, unit=unit))
    joined: DataFrame = pd.concat(parts, ignore_index=True)
    return joined.dropna(axis="columns", how="all")
