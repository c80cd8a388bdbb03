"""The numbers of a card, from the frame of the report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from convbench.judges.verdicts import LEFT_OUT, TEMPERATURE
from convbench.reports.frame import mean_of, read_rows
from convbench.schema import Conversation, Example
from convbench.schema.task import SPLITS
from convbench.stats.estimates import Estimate
from convbench.store import Run
from convbench.store.index import VerdictRow

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class PolicyFigures:
    """Means over the completed conversations of one split and temperature."""

    split: str
    temperature: float | None
    """None if none was sent."""
    n: int
    unparsed: int | None
    """Answers that could not be read; None if none can be graded."""
    accuracy: Estimate | None
    thinking: Estimate | None
    reasoned: Estimate | None


@dataclass(frozen=True)
class RewardFigures:
    """The rewards that one judge gave to conversations of one split."""

    judge: str
    split: str
    reward: Estimate | None
    failed: int
    """Verdicts without a reward."""


@dataclass(frozen=True)
class CardFigures:
    """The numbers of a dataset's card."""

    total: int
    """Conversations, failed ones included."""
    failed: int
    """Number of failed conversations."""
    splits: dict[str, int]
    """Conversations by split."""
    policy: list[PolicyFigures]
    rewards: list[RewardFigures]
    failures: list[tuple[str, int]]
    """Kind of failure, count."""
    cost_usd: float | None
    """Dollars of all policy and teacher calls; None if unknown."""
    tokens: tuple[int | None, int | None]
    """Prompt and completion tokens; None if unknown."""
    judge_usd: float | None
    """Dollars of all verdicts; None if unknown."""
    untempered: frozenset[str]
    """Fingerprints of judges whose model takes no temperature."""
    left_out: dict[str, tuple[str, ...]]
    """By speaker, the parameters that were not sent in any conversation."""
    cut: int
    """Conversations with a turn cut by max_tokens."""
    flagged: int
    """Conversations with findings of fidelity checks."""


def card_figures(run: Run) -> CardFigures:
    """Return the counts and means of a run for its card, over all splits, which a
    report leaves out.

    Failed conversations count in the totals, but neither in the means nor in tokens and cost. A sum
    of which a part is unknown is None. Raise RunError for a damaged record.
    """
    counts, (rows, _) = _RunCounts(run), read_rows([run])
    for talk in run.conversations():
        counts.add_conversation(talk, run.examples[talk.example_id])
    for verdict in run.verdict_rows():
        counts.add_verdict(verdict)
    cost_usd, prompt, completion = (used.total for used in counts.usage.values())
    return CardFigures(
        total=counts.splits.total(),
        failed=counts.failures.total(),
        splits={name: counts.splits[name] for name in SPLITS if name in counts.splits},
        policy=_policy_figures(rows),
        rewards=_reward_figures(rows),
        failures=sorted(counts.failures.items()),
        cost_usd=cost_usd,
        tokens=(_as_int(prompt), _as_int(completion)),
        judge_usd=counts.judge_usd.total,
        untempered=frozenset(counts.untempered),
        left_out={speaker: tuple(sorted(names)) for speaker, names in counts.left_out.items()},
        cut=counts.cut,
        flagged=counts.flagged,
    )


def _policy_figures(rows: DataFrame) -> list[PolicyFigures]:
    """Return the means over the completed conversations of each split and temperature."""
    figures = []
    complete = rows[~rows["failed"]]
    for (split, sent), own in complete.groupby(["split", "temperature"], dropna=False):
        right, *percent = [mean_of(own, c) for c in ("correct", "thinking", "reasoned")]
        means = (right, *(each and each.scaled(0.01) for each in percent))
        unread = None if right is None else int((own["unread"] > 0).sum())
        temperature = None if sent != sent else float(sent)
        figures.append(PolicyFigures(split, temperature, len(own), unread, *means))
    return figures


def _reward_figures(rows: DataFrame) -> list[RewardFigures]:
    """Return the means over what each judge gave to each split."""
    figures = []
    judges = [c.removesuffix("/failed") for c in rows if c.endswith("/failed")]
    for judge in sorted(judges):
        judged = rows[rows[f"{judge}/failed"].notna()]
        for split, own in judged.groupby("split"):
            mean = mean_of(own, f"{judge}/reward")
            failed = len(own) - (mean.n if mean else 0)
            figures.append(RewardFigures(judge, str(split), mean, failed))
    return figures


class _RunCounts:
    """Counts and sums over a run, for all splits together."""

    def __init__(self, run: Run) -> None:
        self._policy = run.manifest.protocol.policy
        self._paid = frozenset(paid_judges([run]))
        self.splits: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.cut, self.flagged = 0, 0
        self.left_out: defaultdict[str, set[str]] = defaultdict(set)
        self.untempered: set[str] = set()
        self.usage = {
            name: _OptionalSum() for name in ("cost_usd", "prompt_tokens", "completion_tokens")
        }
        self.judge_usd = _OptionalSum()
        self.judge_usd.add(0.0)  # without verdicts judging cost nothing

    def add_conversation(self, talk: Conversation, example: Example) -> None:
        """Count a conversation."""
        self.splits[example.split] += 1
        own = [turn for turn in talk.turns if turn.speaker == self._policy]
        self.cut += any(turn.finish_reason == "length" for turn in own)
        self.flagged += bool(talk.flags)
        for speaker, sent in talk.sent.items():
            self.left_out[speaker].update(sent.left_out)
        if talk.failure is not None:
            self.failures[talk.failure.kind] += 1
            return
        for name, total in self.usage.items():
            total.add(_over_turns(talk, name))

    def add_verdict(self, verdict: VerdictRow) -> None:
        """Count a verdict."""
        if verdict.cost_usd is not None or verdict.fingerprint in self._paid:
            self.judge_usd.add(verdict.cost_usd)
        if TEMPERATURE in verdict.details.get(LEFT_OUT, ()):
            self.untempered.add(verdict.fingerprint)


class _OptionalSum:
    """An exact sum, rounded once; None without values, or if one is unknown."""

    def __init__(self) -> None:
        self._known: Fraction | None = None
        self._unknown = False

    def add(self, value: float | None) -> None:
        """Add a value; None makes the sum unknown."""
        if value is None:
            self._unknown = True
        else:
            self._known = (self._known or 0) + Fraction(value)

    @property
    def total(self) -> float | None:
        """Return the sum, or None."""
        return None if self._known is None or self._unknown else float(self._known)


def _over_turns(talk: Conversation, name: str) -> float | None:
    """Return the sum of a field over the turns that a model was called for; None if one of them is
    unknown, or there are none."""
    values = [(getattr(turn, name), not turn.is_of_model) for turn in talk.turns]
    known = [value for value, _ in values if value is not None]
    if not known or any(value is None and not unasked for value, unasked in values):
        return None
    return float(sum(known))


def paid_judges(runs: Iterable[Run]) -> list[str]:
    """Return the fingerprints of the judges of these runs that call a model; one that several runs
    have comes several times."""
    return [
        mark for run in runs for mark, spec in run.judge_specs().items() if spec.model is not None
    ]


def _as_int(value: float | None) -> int | None:
    return None if value is None else int(value)
