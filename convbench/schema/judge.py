"""Judge, rubric, verdict, comparison: how a conversation gets its reward, and how two compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from convbench.schema.base import (
    ConversationId,
    Count,
    Dollars,
    FrozenModel,
    JudgedId,
    Label,
    Name,
    PythonRef,
    Score,
)
from convbench.schema.conversation import Failure
from convbench.schema.judge_kinds import KINDS
from convbench.schema.reasoning import Effort

Per = Literal["conversation", "turn", "pair", "group"]
Together = Literal["mean", "sum", "last", "discount"]
Fence = Literal["quoted", "nonce", "none"]
"""How others' words are written into a rubric's prompt. `quoted`: the transcript between marks that
nobody in it can know, with its lines quoted, and question, options and hidden texts quoted if they
have several lines. `nonce`: only the transcript between marks. `none`: everything as it is."""
Words = Literal["optional", "required"]
"""Whether a score must come with a justification."""
Replies = Literal["structured", "text"]
"""What a judge model is asked for: JSON by a schema, if the model takes one; or text only."""
Criteria = Literal["appended", "as-written"]
"""Whether a rubric's metrics, their ranges and the form of a reply are added to its prompts."""
if TYPE_CHECKING:
    JudgeKind = str
else:
    JudgeKind = Literal[tuple(KINDS)]


class Metric(FrozenModel):
    """One score of a rubric."""

    name: Name
    """Column name, e.g. `reasoning`."""
    label: Label
    """Label the judge writes before the score, e.g. `Reasoning ability`."""
    aliases: tuple[Label, ...] = ()
    """Other labels that mean the same."""
    about: str = ""
    """What it asks."""
    optional: bool = False
    """Whether a function may leave it out if there is nothing to measure it by."""
    lowest: float | None = Field(default=None, exclude_if=lambda value: value is None)
    """Smallest score of this metric; null: the judge's."""
    highest: float | None = Field(default=None, exclude_if=lambda value: value is None)
    """Largest score of this metric; null: the judge's."""
    weight: float | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    """Its weight in `overall`, which is then not a score of its own but the weighted mean of the
    metrics with a weight, each brought to the judge's scale."""


class Reward(FrozenModel):
    """How scores become the reward: metric / scale * discount^n, n questions."""

    metric: str = "overall"
    """The metric that counts."""
    scale: float = Field(default=10.0, gt=0)
    """Divisor; with the rubric's 0-10 it gives rewards in [0, 1]."""
    discount: float | None = Field(default=None, gt=0, le=1)
    """gamma of gamma^n, n policy turns that another speaker answers (the turn with the marker and
    the answer do not count); null takes the protocol's, if it has one."""
    together: Together = Field(default="mean", exclude_if=lambda how: how == "mean")
    """How the rewards of a judge's turns (`per: turn`) become the conversation's: their `mean`,
    their `sum`, that of the `last` turn, or `discount`: the sum of gamma^(t-1) times that of the
    t-th turn, in place of gamma^n."""


class TurnScores(FrozenModel):
    """Scores that a judge with `per: turn` gave to one policy turn."""

    turn: Count
    """Index of the turn among all turns of the conversation, from 0."""
    scores: dict[str, Score]
    """Score by metric."""
    reward: float
    """Reward of this turn alone: metric / scale."""
    justifications: dict[str, str] = Field(default_factory=dict)
    """The judge's words by metric."""


OVERALL, OVERALL_LABEL = "overall", "Overall"
_TURNS = TypeAdapter(tuple[TurnScores, ...])


class JudgeSpec(FrozenModel):
    """A judge."""

    name: Name
    """Name on the command line."""
    title: Label
    """One line for lists and cards."""
    kind: JudgeKind
    """`rubric`: a model scores; `rules`: a function; `human`: labels from a file; `answers`: a
    model reads the answers that are unread; the others grade the task's own kind of answer."""
    of: Literal["policy", "others"] = Field(default="policy", exclude_if=lambda of: of == "policy")
    """Whose part is scored: the policy's, or that of the other speakers, whose scores are never a
    reward. For kind `rubric`."""
    model: Label | None = None
    """The judge model of a rubric; usually set on the command line."""
    api_base: str | None = None
    """Address of the server of `model`, if it is not the provider's own."""
    system: str | None = None
    """System prompt of a rubric."""
    prompt: str | None = None
    """Prompt template of a rubric."""
    metrics: tuple[Metric, ...] = ()
    """The scores, in order, each with a name of its own; `reward.metric` must be among them. If
    they have weights, `overall` exists and must not be listed."""
    lowest: float = 0.0
    """Smallest score, for every metric without one of its own."""
    highest: float = 10.0
    """Largest score, for every metric without one of its own."""
    justification: Words = Field(default="optional", exclude_if=lambda words: words == "optional")
    """Whether each score needs a justification (`required`): a judge's reply without one is asked
    for again, and people must write a note. For kinds `rubric` and `human`."""
    asks: int = Field(default=3, ge=1)
    """Most replies asked for: the first, and further ones with the complaint while a reply is
    malformed."""
    per: Per = Field(default="conversation", exclude_if=lambda per: per == "conversation")
    """What is scored: the conversation once; every policy turn (`turn`), each with the conversation
    up to it; two conversations (`pair`: `judge --pairwise A B`); or all conversations of a run
    about a question together (`group`). For turns the scores are means, the reward combines all
    turns (`reward.together`), and each turn's own scores are in the verdict's details. For a pair
    the scale of the reward's metric goes from the first conversation (lowest) to the second. Kind
    `rubric` supports all, `rules` all but `group`."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature of the judge model."""
    max_tokens: int = Field(default=1024, ge=1)
    """Limit of a judge's reply."""
    reasoning_effort: Effort | None = Field(default=None, exclude_if=lambda value: value is None)
    """How long the judge model is to think; null leaves its own default."""
    sees_reasoning: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether the transcript includes what speakers thought in a separate channel."""
    fence: Fence | None = Field(default=None, exclude_if=lambda value: value is None)
    """How others' words are written into the prompt. A rubric that is named on the command line
    gets `quoted` if it sets nothing, and so do the prompts of a grader (`args.inner.grade: model`);
    one stored in an older run stays as it was."""
    replies: Replies | None = Field(default=None, exclude_if=lambda value: value is None)
    """What is asked for. A rubric that is named on the command line gets `structured` if it sets
    nothing; one stored in an older run stays with text."""
    criteria: Criteria | None = Field(default=None, exclude_if=lambda value: value is None)
    """Whether the system prompt ends with the metrics (`about`), their ranges and the form of a
    reply (`appended`), or is sent as it is written. A rubric that is named on the command line gets
    `appended` if it sets nothing and its prompts do not contain every label (`Label: [score]`); one
    stored in a run stays as it was."""
    function: PythonRef | None = None
    """Function of a `rules` judge: `fn(conversation, example, protocol) -> dict of scores`."""
    file: str | None = None
    """Labels of a `human` judge."""
    reward: Reward = Reward()
    """How scores become the reward."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Settings of the kind (limits, viewport, adapter, …)."""
    reference: str | None = None
    """Where this rubric is specified."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind == "rubric" and not (self.system and self.prompt and self.metrics):
            raise ValueError("a rubric needs system, prompt and metrics")
        if self.kind == "rules" and not self.function:
            raise ValueError("a rules judge needs function: FILE.py:fn")
        if self.kind == "answers" and not (self.system and self.prompt):
            raise ValueError("a reader of answers needs system and prompt")
        if self.of == "others" and (self.kind, self.per) != ("rubric", "conversation"):
            raise ValueError("of: others needs kind rubric and per: conversation")
        able = ("rubric",) if self.per == "group" else ("rubric", "rules")
        if self.per != "conversation" and self.kind not in able:
            raise ValueError(f"per: {self.per} needs kind {' or '.join(able)}; found {self.kind}")
        if self.justification == "required" and self.kind not in ("rubric", "human"):
            raise ValueError(
                f"justification: required needs kind rubric or human; found {self.kind}"
            )
        self._check_metrics()
        return self

    def _check_metrics(self) -> None:
        """Raise ValueError for metrics that one rubric cannot have together."""
        names = [metric.name for metric in self.metrics]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"metrics: found {twice[0]!r} twice; expected each name once")
        for metric in self.metrics:
            low, high = self.score_limits(metric.name)
            if not low < high:
                raise ValueError(
                    f"metrics: {metric.name} goes from {low:g} to {high:g}; expected lowest below "
                    "highest"
                )
        if self.has_weights and OVERALL in names:
            raise ValueError(
                "metrics: found overall and metrics with weights, which make it; remove overall or "
                "the weights"
            )
        if names and self.reward.metric not in self.score_names:
            known = list(self.score_names)
            raise ValueError(f"reward.metric {self.reward.metric!r} is not among {known}")

    @property
    def is_relative(self) -> bool:
        """Return whether its scores rank conversations about the same question only, and mean
        nothing across questions or policies."""
        return self.per == "group"

    @property
    def scores_policy(self) -> bool:
        """Return whether its scores are of the policy, and may be its reward."""
        return self.of == "policy" and self.kind != "answers"

    @property
    def has_weights(self) -> bool:
        """Return whether `overall` is computed from the metrics' weights."""
        return any(metric.weight is not None for metric in self.metrics)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Return the names of a verdict's scores: the metrics', and `overall` if weights define
        it."""
        overall = (OVERALL,) if self.has_weights else ()
        return (*(metric.name for metric in self.metrics), *overall)

    @property
    def headline_metric(self) -> str:
        """Return the metric that stands for the judge: `overall` if it has one or has no metrics,
        else the reward's."""
        return OVERALL if not self.metrics or OVERALL in self.score_names else self.reward.metric

    @property
    def score_labels(self) -> dict[str, str]:
        """Return the labels of these scores by name."""
        overall = {OVERALL: OVERALL_LABEL} if self.has_weights else {}
        return {**{metric.name: metric.label for metric in self.metrics}, **overall}

    def score_limits(self, name: str) -> tuple[float, float]:
        """Return (smallest, largest) score of a metric; the judge's own limits if the metric sets
        none or is unknown."""
        for metric in self.metrics:
            if metric.name == name:
                return (
                    self.lowest if metric.lowest is None else metric.lowest,
                    self.highest if metric.highest is None else metric.highest,
                )
        return self.lowest, self.highest

    def with_overall(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return a copy of a verdict's scores, with `overall` added if weights define it; unchanged
        if no score has a weight.

        `overall` is the weighted mean of the scores present, each metric's range stretched to the
        judge's.
        """
        counted = [m for m in self.metrics if m.weight is not None and m.name in scores]
        if not counted:
            return dict(scores)
        total = math.fsum(m.weight or 0.0 for m in counted)
        shares = (
            (m.weight or 0.0) * _range_share(scores[m.name], *self.score_limits(m.name))
            for m in counted
        )
        share = math.fsum(shares) / total
        return {**scores, OVERALL: self.lowest + share * (self.highest - self.lowest)}


def _range_share(value: float, low: float, high: float) -> float:
    """Return where a score lies in its range, from 0 to 1."""
    return (value - low) / (high - low)


class _HasDetails(Protocol):
    """A verdict, or a row of one."""

    @property
    def details(self) -> Mapping[str, Any]: ...


def turn_scores(verdict: _HasDetails) -> tuple[TurnScores, ...]:
    """Return a verdict's scores of single turns, in order; empty if its judge scored the
    conversation only, or they cannot be read."""
    try:
        return _TURNS.validate_python(verdict.details.get("turns") or ())
    except ValidationError:
        return ()


class Verdict(FrozenModel):
    """One judge's verdict on one conversation. Judging again appends a new one."""

    conversation_id: JudgedId
    """The conversation."""
    judge: Label
    """Name of the judge on the command line, e.g. `claude-opus`."""
    fingerprint: str
    """Fingerprint of the judge's spec and model."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """Score by metric; empty if it failed."""
    reward: Score | None = None
    """Reward; null if it failed."""
    justifications: dict[str, str] = Field(default_factory=dict)
    """The judge's words by metric."""
    details: dict[str, Any] = Field(default_factory=dict)
    """Further results of this kind of judge."""
    reply: str | None = None
    """The raw reply, stored if it could not be read."""
    failure: Failure | None = None
    """Set if there is no score."""
    attempts: Count = 1
    """Number of replies asked for."""
    prompt_tokens: Count | None = None
    """Tokens of all prompts."""
    completion_tokens: Count | None = None
    """Tokens of all replies."""
    cost_usd: Dollars | None = None
    """Dollars; null if unknown."""
    ended: str = ""
    """UTC time, ISO 8601."""

    @property
    def scored(self) -> bool:
        """Return whether it has scores: it is no failure."""
        return self.failure is None


class Comparison(FrozenModel):
    """One judge's comparison of two conversations in one order. The other order is another one."""

    first: ConversationId
    """conversation_id of the one that was shown first."""
    second: ConversationId
    """conversation_id of the one that was shown second."""
    judge: Label
    """Name of the judge on the command line."""
    fingerprint: str
    """Fingerprint of the judge's spec and model."""
    group_id: str
    """The independent unit that both belong to."""
    preferred: float | None = Field(default=None, ge=0, le=1)
    """How far the one shown first is preferred: 1 fully, 0.5 a tie, 0 the other; null if the
    judge's reply could not be read."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """Score by metric, as the judge gave it."""
    justifications: dict[str, str] = Field(default_factory=dict)
    """The judge's words by metric."""
    reply: str | None = None
    """The raw reply, stored if it could not be read."""
    failure: Failure | None = None
    """Set if there is no preference."""
    attempts: Count = 1
    """Number of replies asked for."""
    details: dict[str, Any] = Field(default_factory=dict)
    """Further results."""
    prompt_tokens: Count | None = None
    """Tokens of all prompts."""
    completion_tokens: Count | None = None
    """Tokens of all replies."""
    cost_usd: Dollars | None = None
    """Dollars; null if unknown."""
    ended: str = ""
    """UTC time, ISO 8601."""
