"""The numbers of a card, by the measures of the report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

from convbench.judges.verdicts import LEFT_OUT, TEMPERATURE
from convbench.reports.measures import ACCURACY, REASONED, THINKING, reward_measure
from convbench.reports.policies import Observations, observe_run
from convbench.schema import Conversation, Example
from convbench.schema.task import SPLITS
from convbench.stats.means import Estimate
from convbench.store import Run
from convbench.store.index import VerdictRow

SplitTemperature = tuple[str, float | None]
"""Split and temperature."""
SHARES = tuple(replace(measure, scale=1.0) for measure in (ACCURACY, THINKING, REASONED))
"""The measures of a card, as shares; the report prints them in percent."""


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
    counts, parts = _RunCounts(run), _SplitObservations(run)
    for talk in run.conversations():
        counts.add_conversation(talk, run.examples[talk.example_id])
    for verdict in run.verdict_rows():
        counts.add_verdict(verdict)
    cost_usd, prompt, completion = (used.total for used in counts.usage.values())
    return CardFigures(
        total=counts.splits.total(),
        failed=counts.failures.total(),
        splits={name: counts.splits[name] for name in SPLITS if name in counts.splits},
        policy=parts.policy_figures(),
        rewards=parts.reward_figures(),
        failures=sorted(counts.failures.items()),
        cost_usd=cost_usd,
        tokens=(_as_int(prompt), _as_int(completion)),
        judge_usd=counts.judge_usd.total,
        untempered=frozenset(counts.untempered),
        left_out={speaker: tuple(sorted(names)) for speaker, names in counts.left_out.items()},
        cut=counts.cut,
        flagged=counts.flagged,
    )


class _SplitObservations:
    """A run's conversations by split and temperature, observed as for a report."""

    def __init__(self, run: Run) -> None:
        self._rows: defaultdict[SplitTemperature, Observations] = defaultdict(Observations)
        self._ended: Counter[SplitTemperature] = Counter()
        """Conversations that did not fail."""
        self._unparsed: Counter[SplitTemperature] = Counter()
        self._verdicts: Counter[tuple[str, str]] = Counter()
        """By judge and split."""
        for question, graded, row in observe_run(run, "all"):
            part, verdicts = (question.split, row.temperature), {**row.verdicts, **row.reviews}
            self._rows[part].add(row._replace(verdicts=verdicts))
            if not row.failed:
                self._ended[part] += 1
                self._unparsed[part] += not graded.answered
            self._verdicts.update((judge, question.split) for judge in verdicts)

    def policy_figures(self) -> list[PolicyFigures]:
        """Return the means over the conversations of each split and temperature."""
        figures = []
        for part in sorted(self._ended, key=lambda part: tuple(map(str, part))):
            means = [measure.mean_over(self._rows[part]) for measure in SHARES]
            unparsed = None if means[0] is None else self._unparsed[part]
            figures.append(PolicyFigures(*part, self._ended[part], unparsed, *means))
        return figures

    def reward_figures(self) -> list[RewardFigures]:
        """Return the means over what each judge gave to each split."""
        figures = []
        for (judge, split), count in sorted(self._verdicts.items()):
            parts = (rows for (name, _), rows in self._rows.items() if name == split)
            mean = reward_measure(judge).mean_over(chain.from_iterable(parts))
            figures.append(RewardFigures(judge, split, mean, count - (mean.n if mean else 0)))
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
