"""What commands that estimate, evaluate and label have to tell."""

from __future__ import annotations

from pydantic import Field

from convbench.cli.answers.judged import JudgedRun
from convbench.cli.answers.runs import Tokens
from convbench.cli.envelope import Answer


class EstimatedValue(Answer):
    """A mean reward with its 95% interval."""

    estimator: str
    """`direct`, `snips`, `doubly robust`; `gain` is SNIPS less the log's own policy."""
    mean: float
    low: float | None
    """Null where there is no standard error."""
    high: float | None
    """Its upper end."""


class EstimateAnswer(Answer):
    """`estimate`: a policy's value from another one's log."""

    run: str
    """The log."""
    policy: str
    """Whose value it is."""
    judge: str
    """Whose verdicts are the reward."""
    conversations: int
    """Conversations that were weighed."""
    left_out: dict[str, int]
    """Conversations without a say, by reason."""
    known: bool
    """Whether the log says anything of the policy; else the exit code is 1."""
    why: list[str]
    """Why it does not."""
    effective: float | None
    """Effective sample size in conversations; null where no weight could be had."""
    effective_questions: float | None
    """The same in questions."""
    largest: float | None
    """Share of the largest weight."""
    shape: float | None
    """Pareto shape of the largest weights."""
    logged: EstimatedValue | None
    """The mean reward of the log's own policy."""
    values: list[EstimatedValue]
    """The estimates; of a policy that cannot be known the direct one at most."""


class EvaluatedRun(Answer):
    """A policy on one parent's test questions."""

    run: str
    """The child run."""
    parent: str
    """Whose questions, teacher and judges it takes."""
    policy: str
    """Reference of the policy."""
    conversations: int
    """Conversations that the run has now."""
    failed: int
    """Conversations that ended in a recorded failure."""
    judged: JudgedRun | None
    """Its scores; null where the parent has no verdicts."""
    estimate: Tokens | None = None
    """On a dry run: what the policy would take; `judged` says it of the judges."""


class EvalAnswer(EvaluatedRun):
    """`eval`: a policy on the parent's test questions."""

    others: list[EvaluatedRun] = Field(default_factory=list)
    """The same policy on each further run that was named."""


class GoldAnswer(Answer):
    """`gold`: what was drawn, written or read, and how far the labelling queue is."""

    run: str
    """The run whose folder holds the labels."""
    drawn: dict[str, int] | None = None
    """Conversations of this draw, by policy."""
    by: str | None = None
    """How they were drawn."""
    file: str | None = None
    """What was written or read."""
    labels: int | None = None
    """Conversations written, or labels read."""
    queue: int
    """Conversations that were drawn in all."""
    done: int
    """Those of them with labels enough."""
    skipped: int
    """Those that all who saw them skipped."""
    raters: dict[str, int] = Field(default_factory=dict)
    """Scores by person."""
    agreement: dict[str, float | None] = Field(default_factory=dict)
    """Krippendorff's alpha between people, by judge that was drawn for."""


class CreditAnswer(Answer):
    """`credit`: what policy turns were worth."""

    run: str
    """The run that keeps it."""
    source: str
    """Who said it: `critic:NAME`, `critic-raw:NAME`, `branches:JUDGE`."""
    turns: int
    """Policy turns with credit."""
    conversations: int
    """Conversations they belong to."""
    least: float
    """Least advantage."""
    mean: float
    """Mean advantage."""
    most: float
    """Largest advantage."""
    left_out: dict[str, int]
    """Conversations, or branches, without credit, by reason."""
