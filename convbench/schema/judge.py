"""Judge, rubric and verdict: how a conversation gets its reward."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from convbench.schema.conversation import Failure
from convbench.schema.noun import Count, Dollars, Name, Noun, PythonRef
from convbench.schema.reasoning import Effort

Per = Literal["conversation", "turn"]
Together = Literal["mean", "sum", "last", "discount"]
Fence = Literal["nonce", "none"]
"""How a transcript stands in a rubric's prompt: between marks that nobody in it can know, with its
lines quoted; or as it is."""
Replies = Literal["structured", "text"]
"""What a judge model is asked for: JSON by a schema, where it takes one; or text alone."""
JudgeKind = Literal["rubric", "rules", "human", "unit-tests", "render", "adaptation"]


class Metric(Noun):
    """One score of a rubric."""

    name: Name
    """Column name, e.g. `reasoning`."""
    label: str
    """Label the judge writes before the score, e.g. `Reasoning ability`."""
    aliases: tuple[str, ...] = ()
    """Other labels that mean the same."""
    about: str = ""
    """What it asks."""
    optional: bool = False
    """Whether a function may leave it out where there is nothing to measure it by."""


class Reward(Noun):
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


class TurnScores(Noun):
    """What a judge with `per: turn` said of one policy turn."""

    turn: Count
    """Index of the turn among all turns of the conversation, from 0."""
    scores: dict[str, float]
    """Score by metric."""
    reward: float
    """Reward of this turn alone: metric / scale."""
    justifications: dict[str, str] = Field(default_factory=dict)
    """The judge's words by metric."""


_TURNS = TypeAdapter(tuple[TurnScores, ...])


class JudgeSpec(Noun):
    """A judge."""

    name: Name
    """Name on the command line."""
    title: str
    """One line for lists and cards."""
    kind: JudgeKind
    """`rubric`: a model scores; `rules`: a function; `human`: labels from a file;
    the others grade the task's own kind of answer."""
    model: str | None = None
    """The judge model of a rubric; usually given on the command line."""
    api_base: str | None = None
    """Address of the server of `model`, where it is not the provider's own."""
    system: str | None = None
    """System prompt of a rubric."""
    prompt: str | None = None
    """Prompt template of a rubric."""
    metrics: tuple[Metric, ...] = ()
    """The scores, in order; one must be `overall`."""
    lowest: float = 0.0
    """Smallest score."""
    highest: float = 10.0
    """Largest score."""
    asks: int = Field(default=3, ge=1)
    """Most replies asked for: the first, and more with the complaint while one is malformed."""
    per: Per = Field(default="conversation", exclude_if=lambda per: per == "conversation")
    """What is scored: the conversation once, or every policy turn (`turn`), each with the
    conversation up to it. The scores are then means over the turns, the reward is that of all turns
    together (`reward.together`), and each turn's own stands in the verdict's details. For kinds
    `rubric` and `rules`."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature of the judge model."""
    max_tokens: int = Field(default=1024, ge=1)
    """Limit of a judge's reply."""
    reasoning_effort: Effort | None = Field(default=None, exclude_if=lambda value: value is None)
    """How long the judge model is to think; null leaves its own default."""
    sees_reasoning: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether the transcript holds what speakers thought in a channel of their own."""
    fence: Fence | None = Field(default=None, exclude_if=lambda value: value is None)
    """How the transcript stands in the prompt. A rubric that is named gets `nonce` where it says
    nothing; one that a run kept from before there were fences stays without."""
    replies: Replies | None = Field(default=None, exclude_if=lambda value: value is None)
    """What is asked for. A rubric that is named gets `structured` where it says nothing; one that a
    run kept from before stays with text."""
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
    def _complete(self) -> Self:
        if self.kind == "rubric" and not (self.system and self.prompt and self.metrics):
            raise ValueError("a rubric needs system, prompt and metrics")
        if self.kind == "rules" and not self.function:
            raise ValueError("a rules judge needs function: pkg.mod:fn")
        if self.per == "turn" and self.kind not in ("rubric", "rules"):
            raise ValueError(f"per: turn needs kind rubric or rules; found {self.kind}")
        names = [metric.name for metric in self.metrics]
        if names and self.reward.metric not in names:
            raise ValueError(f"reward.metric {self.reward.metric!r} is not among {names}")
        return self


def turn_scores(verdict: Verdict) -> tuple[TurnScores, ...]:
    """Return what a verdict holds of single turns, in order; empty where its judge scored the
    conversation alone, or what is there cannot be read."""
    try:
        return _TURNS.validate_python(verdict.details.get("turns") or ())
    except ValidationError:
        return ()


class Verdict(Noun):
    """What one judge said of one conversation. Judging again appends a new one."""

    conversation_id: str
    """The conversation."""
    judge: str
    """Name of the judge as it was asked for, e.g. `claude-opus`."""
    fingerprint: str
    """Fingerprint of the judge's spec and model."""
    scores: dict[str, float] = Field(default_factory=dict)
    """Score by metric; empty where it failed."""
    reward: float | None = None
    """Reward; null where it failed."""
    justifications: dict[str, str] = Field(default_factory=dict)
    """The judge's words by metric."""
    details: dict[str, Any] = Field(default_factory=dict)
    """More that this kind of judge found."""
    reply: str | None = None
    """The raw reply, kept where it could not be read."""
    failure: Failure | None = None
    """Set where there is no score."""
    attempts: Count = 1
    """Replies asked for."""
    prompt_tokens: Count | None = None
    """Tokens of all prompts."""
    completion_tokens: Count | None = None
    """Tokens of all replies."""
    cost_usd: Dollars | None = None
    """Dollars; null where unknown."""
    ended: str = ""
    """UTC time, ISO 8601."""
