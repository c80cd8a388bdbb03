"""What commands that make and name runs have to tell."""

from __future__ import annotations

from pydantic import Field

from convbench.cli.envelope import Answer


class Tokens(Answer):
    """What a command would take at most, told by a dry run."""

    conversations: int
    """Conversations, or verdicts where a judge is asked."""
    calls: int
    """Calls of models."""
    prompt_tokens: int
    """Tokens sent, about."""
    reply_tokens: int
    """Tokens written, at most."""
    usd: float | None
    """Dollars at most; null where a price is unknown."""


class RunAnswer(Answer):
    """`import`, `pull`, `tag`: a run that was made or named."""

    run: str
    """Its folder."""
    conversations: int | None = None
    """Conversations in it."""
    questions: int | None = None
    """Questions they are about."""
    rewards: int | None = None
    """Conversations that came with a reward."""
    repo: str | None = None
    """Where on the Hub it is from."""
    commit: str | None = None
    """The commit there."""
    tags: list[str] = Field(default_factory=list)
    """Its tags."""
    note: str | None = None
    """Its note."""


class ForeseenAnswer(Answer):
    """What work on shards would take, told by a dry run."""

    workers: int
    """Shards at once."""
    shards: int
    """Shards."""
    hours: float
    """Hours until all is done."""
    hours_with_losses: float
    """The same where each process is lost once a day."""
    folder_bytes: float
    """Bytes of the run's folder, about."""
    calls_a_minute: float
    """Calls a minute that the provider must bear."""
    tokens_a_minute: float
    """Tokens a minute likewise."""
    rates_of: str
    """Where a process's rate is from."""
    written: str | None
    """The script, manifest or command that starts them."""


class BuildAnswer(Answer):
    """`build`: a run and what it holds now."""

    run: str | None
    """Its folder; null on a dry run."""
    task: str
    """The task."""
    protocol: str
    """The protocol."""
    mode: str
    """thinking or standard."""
    policy: str
    """Reference of the policy."""
    questions: dict[str, int]
    """Questions by split."""
    conversations: int = 0
    """Conversations that the run has now."""
    before: int = 0
    """Those of them that it had before."""
    failed: int = 0
    """Conversations that ended in a recorded failure."""
    failures: dict[str, int] = Field(default_factory=dict)
    """How often each message stands behind a failure."""
    cut: int = 0
    """Policy turns that reached max_tokens."""
    turns: int = 0
    """Policy turns."""
    flags: dict[str, int] = Field(default_factory=dict)
    """Findings by flag."""
    recorded: int | None = None
    """Replies of the policy whose log-probabilities were recorded; null where they were not asked
    for. Fewer than `replies`: exit code 1."""
    replies: int | None = None
    """Replies of the policy, those that called tools too; null likewise."""
    estimate: Tokens | None = None
    """On a dry run: what it would take."""
    foreseen: ForeseenAnswer | None = None
    """On a dry run with --shards or --on: what these would take."""
