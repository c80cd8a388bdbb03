"""The numbers of a card: means with standard errors clustered by group."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.judge.model import LEFT_OUT, TEMPERATURE
from convbench.publish.portions import Portions
from convbench.schema.example import SPLITS
from convbench.stats.columns import Column
from convbench.stats.estimate import Estimate, estimate
from convbench.store import Run
from convbench.store.limits import interruptible
from convbench.store.tables import connect

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


BATCH = 4096
"""Rows that are in memory at once."""


@dataclass(frozen=True)
class Figures:
    """What the card tells in numbers. Each list holds rows of a table."""

    total: int
    """Conversations, failed ones included."""
    failed: int
    """Conversations that failed."""
    splits: dict[str, int]
    """Conversations by split."""
    policy: list[dict[str, Any]]
    """split, temperature (None: not sent), accuracy, unparsed, thinking, reasoned, n."""
    rewards: list[dict[str, Any]]
    """judge, split, reward (Estimate), failed verdicts."""
    failures: list[tuple[str, int]]
    """Kind of failure, count."""
    cost_usd: float | None
    """Dollars of all policy and teacher calls; None where unknown."""
    tokens: tuple[int | None, int | None]
    """Prompt and completion tokens; None where unknown."""
    judge_usd: float | None
    """Dollars of all verdicts; None where unknown."""
    untempered: frozenset[str]
    """Fingerprints of judges whose model takes no temperature."""
    left_out: dict[str, tuple[str, ...]]
    """By speaker, the parameters that were not sent in any conversation."""
    cut: int
    """Conversations with a turn cut by max_tokens."""
    flagged: int
    """Conversations with findings of fidelity checks."""


TALKS = """
SELECT split, temperature, group_id, split_part(failure, ':', 1) AS failed, correct,
  answer IS NULL AS unparsed, thinking, reasoned, cost_usd, prompt_tokens, completion_tokens,
  cut_turns > 0 AS cut, len(flags) > 0 AS flagged
FROM conversations
"""
GIVEN = """
SELECT v.judge, c.split, c.group_id, v.reward
FROM verdicts v JOIN (
  SELECT k.conversation_id, e.split, e.group_id FROM raw.conversations k
    LEFT JOIN raw.examples e ON e.run_no = k.run_no AND e.example_id = k.example_id
) c USING (conversation_id)
"""


@interruptible()
def figures(portions: Portions) -> Figures:
    """Count and average a run, for its card."""
    run = portions.whole
    talks, spent, unknown = _Talks(), _Sum(), False
    given: defaultdict[tuple[str, str], _Given] = defaultdict(_Given)
    asking = paid([run])
    for portion in portions.talks:
        with connect([portion], ("conversations", "verdicts")) as connection:
            for row in _dicts(connection, TALKS):
                talks.add(row)
            for row in _dicts(connection, GIVEN):
                given[row["judge"], str(row["split"])].add(row)
            usd, some_unknown = connection.execute(JUDGING, [asking]).fetchall()[0]
            spent.add(usd or 0.0)
            unknown = unknown or bool(some_unknown)
    prompt, completion = talks.prompt.total, talks.completion.total
    return Figures(
        total=talks.total,
        failed=talks.failures.total(),
        splits={name: talks.splits[name] for name in SPLITS if name in talks.splits},
        policy=[talks.parts[key].row() for key in sorted(talks.parts, key=_texts)],
        rewards=[given[key].row(*key) for key in sorted(given)],
        failures=sorted(talks.failures.items()),
        cost_usd=talks.cost.total,
        tokens=(_whole(prompt), _whole(completion)),
        judge_usd=judging(spent.total, unknown),
        untempered=frozenset(v.fingerprint for v in run.verdicts()
                             if TEMPERATURE in v.details.get(LEFT_OUT, ())),
        left_out=_left_out(run),
        cut=talks.cut,
        flagged=talks.flagged,
    )  # fmt: skip


def _texts(key: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(map(str, key))


class _Sum:
    """A sum that is None where there is nothing, or any of it is unknown."""

    def __init__(self) -> None:
        self._known, self._unknown = Column(array("d")), False

    def add(self, value: float | None) -> None:
        if value is None:
            self._unknown = True
        else:
            self._known.append(value)

    @property
    def total(self) -> float | None:
        return math.fsum(self._known) if len(self._known) and not self._unknown else None


class _Values:
    """Values with their groups."""

    def __init__(self) -> None:
        self._groups, self._values = Column(array("q")), Column(array("d"))

    def add(self, group: str, value: float) -> None:
        self._groups.append(hash(group))
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._values)

    def estimate(self) -> Estimate | None:
        return estimate(zip(self._groups, self._values, strict=True))


class _Part:
    """The conversations of a split and temperature that ended well."""

    def __init__(self, split: str, temperature: float | None) -> None:
        self.split, self.temperature = split, temperature
        self.count, self.unparsed = 0, 0
        self.right, self.thinking, self.reasoned = _Values(), _Values(), _Values()

    def add(self, row: Mapping[str, Any]) -> None:
        self.count += 1
        self.unparsed += row["unparsed"]
        if row["correct"] is not None:
            self.right.add(row["group_id"], float(row["correct"]))
        self.thinking.add(row["group_id"], float(row["thinking"] or 0))
        self.reasoned.add(row["group_id"], float(row["reasoned"] or 0))

    def row(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "temperature": self.temperature,
            "n": self.count,
            "accuracy": self.right.estimate(),
            "unparsed": self.unparsed if self.right else None,
            "thinking": self.thinking.estimate(),
            "reasoned": self.reasoned.estimate(),
        }


class _Talks:
    """All conversations, counted one by one."""

    def __init__(self) -> None:
        self.total, self.cut, self.flagged = 0, 0, 0
        self.splits: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.parts: dict[tuple[str, float | None], _Part] = {}
        self.cost, self.prompt, self.completion = _Sum(), _Sum(), _Sum()

    def add(self, row: Mapping[str, Any]) -> None:
        self.total += 1
        self.splits[str(row["split"])] += 1
        self.cut += bool(row["cut"])
        self.flagged += bool(row["flagged"])
        if row["failed"] is not None:
            self.failures[row["failed"]] += 1
            return
        for total, name in ((self.cost, "cost_usd"), (self.prompt, "prompt_tokens"),
                            (self.completion, "completion_tokens")):  # fmt: skip
            total.add(row[name])
        key = row["split"], row["temperature"]
        if key not in self.parts:
            self.parts[key] = _Part(*key)
        self.parts[key].add(row)


class _Given:
    """What one judge gave to the conversations of a split."""

    def __init__(self) -> None:
        self.count, self.rewards = 0, _Values()

    def add(self, row: Mapping[str, Any]) -> None:
        self.count += 1
        if row["reward"] is not None:
            self.rewards.add(row["group_id"], row["reward"])

    def row(self, judge: str, split: str) -> dict[str, Any]:
        return {
            "judge": judge,
            "split": split,
            "reward": self.rewards.estimate(),
            "failed": self.count - len(self.rewards),
        }


def _left_out(run: Run) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for talk in run.conversations():
        for speaker, sent in talk.sent.items():
            found.setdefault(speaker, set()).update(sent.left_out)
    return {speaker: tuple(sorted(names)) for speaker, names in found.items()}


JUDGING = """
SELECT sum(cost_usd) AS usd, bool_or(cost_usd IS NULL AND list_contains(?, fingerprint)) AS unknown
FROM raw.verdicts
"""
"""Dollars of verdicts, the newest of each (conversation, judge), and whether a model's are unknown
of the judges that ask one."""


def paid(runs: Iterable[Run]) -> list[str]:
    """Return the fingerprints of the judges that ask a model."""
    return [
        mark for run in runs for mark, spec in run.judge_specs().items() if spec.model is not None
    ]


def judging(usd: float | None, unknown: bool | None) -> float | None:
    """Return the dollars that JUDGING found; None where unknown."""
    return None if unknown else usd or 0.0


def _dicts(connection: DuckDBPyConnection, sql: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query as mappings, some at a time in memory."""
    for batch in connection.sql(sql).to_arrow_reader(BATCH):
        yield from batch.to_pylist()


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
