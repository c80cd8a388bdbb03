"""What `judge` has to tell."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from convbench.cli.answers.runs import ForeseenAnswer, Tokens
from convbench.cli.envelope import Answer


class JudgeScores(Answer):
    """One judge of a run."""

    judge: str
    """Its name."""
    scored: int
    """Conversations that it has scored."""
    failed: int
    """Conversations without a score."""
    means: dict[str, float]
    """Mean score by metric."""
    reward: float | None
    """Mean reward."""
    error: float | None
    """Its standard error, clustered by group."""


class Duels(Answer):
    """Two policies against each other, by one judge."""

    judge: str
    """Its name."""
    first: str
    """As it was typed."""
    second: str
    """As it was typed."""
    win_rate: float | None
    """Of the first, a tie one half; null without a duel judged in both orders."""
    low: float | None
    """Lower end of its 95% interval."""
    high: float | None
    """Upper end."""
    wins: int
    """Duels that the first won."""
    ties: int
    """Duels that nobody won."""
    losses: int
    """Duels that the second won."""
    flips: float | None
    """Share of duels whose winner the order chose."""
    decided: bool | None
    """Whether it is sure who wins; null without --until-decided."""
    spared: int
    """Orders that were not asked, for it was decided."""


class JudgedRun(Answer):
    """One run that was judged."""

    run: str
    """Its folder."""
    judges: list[JudgeScores] = Field(default_factory=list)
    """All judges of the run."""
    unjudged: int = 0
    """Conversations that failed to build: there is nothing to judge."""
    failures: dict[str, dict[str, int]] = Field(default_factory=dict)
    """By judge, how often each message stands behind a missing score."""
    estimate: dict[str, Tokens] = Field(default_factory=dict)
    """On a dry run: by judge, what it would take."""
    messages: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """On a dry run: by judge that asks a model, what its first call is sent."""
    reply_schemas: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """On a dry run: by judge, the schema that goes along where its model takes one."""
    foreseen: ForeseenAnswer | None = None
    """On a dry run with --shards or --on: what the models' verdicts take."""
    duels: list[Duels] = Field(default_factory=list)
    """With --pairwise: every two policies."""


class JudgeAnswer(Answer):
    """`judge`: the runs that were judged."""

    runs: list[JudgedRun]
    """One a `--run`, in the order that was typed."""
