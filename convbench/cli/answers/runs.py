"""What commands that make, spread and hand on conversations have to tell."""

from __future__ import annotations

from typing import Any

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
    """What work by workers would take, told by a dry run."""

    workers: int
    """Workers."""
    shards: int
    """Shards."""
    hours: float
    """Hours until all is done."""
    hours_with_losses: float
    """The same where each worker is lost once a day."""
    folder_bytes: float
    """Bytes of the run's folder, about."""
    calls_a_minute: float
    """Calls a minute that the provider must bear."""
    tokens_a_minute: float
    """Tokens a minute likewise."""
    rates_of: str
    """Where a worker's rate is from."""
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
    """On a dry run with shards or workers: what these would take."""


class QueryAnswer(Answer):
    """`query`: the rows."""

    columns: list[str]
    """Names of the columns."""
    rows: list[dict[str, Any]]
    """Rows, by column."""


class ExportAnswer(Answer):
    """`export`: files in another trainer's format."""

    files: dict[str, str]
    """File by split."""
    rows: dict[str, int]
    """Rows by split."""
    failed: int
    """Failed conversations, left out."""
    flagged: int
    """Flagged conversations, left out."""
    left_out: int
    """Conversations of weight 0 or less, or without a verdict, left out."""


class PublishAnswer(Answer):
    """`publish`: a set or a model on the Hub, or the folder that would be sent."""

    repo: str
    """USER/NAME."""
    url: str | None
    """Its address; null on a dry run."""
    commit: str | None
    """The commit; null on a dry run."""
    changed: bool
    """Whether anything was new there."""
    folder: str | None
    """What would be sent, on a dry run."""
    rows: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Rows by config and split, of a set."""
    files: dict[str, int] = Field(default_factory=dict)
    """Sizes in bytes by path, of a model."""


class BatchAnswer(Answer):
    """One batch at a provider."""

    batch: str | None
    """The provider's name of it."""
    wave: int
    """Which turn it is of."""
    model: str
    """Whose calls."""
    state: str
    """What the provider says, or how it ended."""
    calls: int
    """Calls in it."""
    done: int
    """Those answered."""
    failed: int
    """Those that failed or are missing."""
    problem: str | None
    """Why the provider was not heard."""


class BatchesAnswer(Answer):
    """`status`, `cancel`: a run's batches."""

    run: str
    """Its folder."""
    batches: list[BatchAnswer]
    """In the order they were sent."""


class WorkerAnswer(Answer):
    """One worker, as it says itself."""

    name: str
    """Its name."""
    host: str
    """Its machine."""
    doing: str
    """What it does."""
    shard: int | None
    """The shard it holds."""
    done: int
    """Conversations and verdicts that ended well."""
    failed: int
    """Those that failed."""
    calls: int
    """Calls answered."""
    rate: float
    """Conversations and verdicts a second."""
    usd: float
    """Dollars."""


class WorkAnswer(Answer):
    """`work`: how far the shards of a run are."""

    run: str
    """Its folder."""
    shards: int
    """Shards in all."""
    done: int
    """Those with nothing left to do."""
    waiting: int
    """Those that nobody holds."""
    held: list[int]
    """Those in work."""
    stopped: dict[int, str]
    """Those given back undone, with the reason."""
    given_up: list[int]
    """Those that lost too many workers."""
    usd: float
    """Dollars of what was given back."""
    cap_usd: float | None
    """Most dollars; null without a limit."""
    workers: list[WorkerAnswer]
    """All workers there were."""


class MergeAnswer(Answer):
    """`merge`: shards that were joined."""

    run: str
    """The run's folder."""
    shards: int
    """Shards there were."""
    records: dict[str, int]
    """Records by file."""
