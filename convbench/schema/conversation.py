"""Conversation: one immutable record from build to train, one for each finished attempt; and the
credit of its turns.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from convbench.errors import ConvbenchError
from convbench.schema.base import ConversationId, Count, Dollars, FrozenModel, Score, Seed
from convbench.schema.chat import Content, FinishReason
from convbench.schema.reasoning import Reasoning, Replay
from convbench.schema.tools import ToolCall, ToolResult, ToolRound
from convbench.util.redact import redact_error


class TurnCredit(FrozenModel):
    """The advantage of one policy turn: how much better it was than the policy's average turn
    there."""

    conversation_id: ConversationId
    """The conversation of the turn."""
    turn_index: Count
    """Index of the turn among all turns of the conversation, from 0."""
    source: str = Field(min_length=1, max_length=200)
    """Where the advantage comes from: `critic:NAME` of a checkpoint, or `critic-raw:NAME`."""
    advantage: Score
    """In log-probability a token for a critic (Zhou et al. 2025, equation 3, with mean 0 under the
    base)."""


LONGEST_MESSAGE = 1000
"""Most characters of a failure's message."""

Stop = Literal["complete", "marker", "limit"]


class Turn(FrozenModel):
    """One message of one speaker."""

    speaker: str
    """Who spoke."""
    step: str
    """Id of the protocol's step."""
    content: Content
    """The complete text of the turn."""
    reasoning: Reasoning | None = Field(default=None, exclude_if=lambda value: value is None)
    """What was thought before it in a separate channel; no other speaker sees it."""
    rounds: tuple[ToolRound, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Tool calls and results before the turn was said; tokens and dollars of the turn include all
    its replies."""
    instruction: str | None = None
    """Instruction this speaker got with the message it answered."""
    redrawn: Count = Field(default=0, exclude_if=lambda value: value == 0)
    """Number of replies before this one without the form that the step asks for (`form`); tokens
    and dollars of the turn include all of them."""
    finish_reason: FinishReason = "stop"
    """`length` if the reply was cut by max_tokens; `tool_calls` if a logged turn ended with its
    calls, and no words followed."""
    prompt_tokens: Count | None = None
    """Tokens of the prompt, as the provider counts."""
    completion_tokens: Count | None = None
    """Tokens of the reply, as the provider counts."""
    cost_usd: Dollars | None = None
    """Price of the call in dollars; null if unknown."""

    @property
    def is_of_model(self) -> bool:
        """Return True if a model was called for the turn: it was neither scripted nor a rule's."""
        return self.finish_reason not in ("scripted", "rule")

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the tool calls before the turn was said, in order: `tool_calls` of `query`."""
        return tuple(call for tool_round in self.rounds for call in tool_round.calls)

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """Return the results of these calls, in the calls' order: `tool_results` of `query`."""
        return tuple(result for tool_round in self.rounds for result in tool_round.results)

    @property
    def calls_alone(self) -> bool:
        """Return whether it has tool calls and no words after them, so that its content is no
        reply."""
        return bool(self.rounds) and self.finish_reason == "tool_calls"

    @property
    def reply_count(self) -> int:
        """Return how many replies of the speaker's model it consists of: those that called tools,
        and the words after them."""
        return len(self.rounds) + (not self.calls_alone)


class Failure(FrozenModel):
    """Why an attempt ended without its last turn."""

    kind: str
    """Name of the error's class."""
    message: str
    """One line."""

    @classmethod
    def from_error(cls, error: Exception) -> Failure:
        """Return the record of an error: its class name and a message of one line, without keys and
        paths.

        The message of an error that is not convbench's own begins with the class name. It is cut at
        1,000 characters.
        """
        kind = type(error).__name__
        known = isinstance(error, ConvbenchError)
        return cls.from_message(kind, str(error) if known else f"{kind}: {error}")

    @classmethod
    def from_message(cls, kind: str, message: str) -> Failure:
        """Return a failure with this kind and message, in one line, without keys and paths, and cut
        at 1,000 characters."""
        return cls(kind=kind, message=redact_error(message)[:LONGEST_MESSAGE])


class Sent(FrozenModel):
    """How a speaker's calls differed from the requested settings, and which of its reasoning they
    included."""

    left_out: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Parameters that were not sent, because the model takes none of them."""
    replay: Replay = Field(default="never", exclude_if=lambda value: value == "never")
    """Which of its earlier reasoning was sent back to it."""


class Conversation(FrozenModel):
    """One attempt at one (example, sample). Never edited; the newest record of a key counts."""

    key: str
    """Deterministic within a run: example, sample."""
    conversation_id: ConversationId
    """Unique across runs."""
    attempt: Count = 0
    """Number of attempts of this key before this one."""
    example_id: str
    """The question."""
    sample: Count = 0
    """Number among the samples of the question."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the policy; not sent if `sent` lists it as left out."""
    seed: Seed = 0
    """Seed of this conversation's random streams."""
    systems: dict[str, str] = Field(default_factory=dict)
    """Rendered system prompt of each speaker."""
    turns: tuple[Turn, ...] = ()
    """All messages but system ones, in order."""
    sent: dict[str, Sent] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """What was left out of each speaker's calls and which reasoning was sent back; written only if
    there is anything to record."""
    stop: Stop | None = None
    """Why it ended; null if it failed."""
    failure: Failure | None = None
    """Set if the attempt failed; such a key is tried again on resume."""
    tools: tuple[dict[str, Any], ...] = Field(default=(), exclude_if=lambda value: not value)
    """Tools that the policy of a logged conversation was offered, as the chat API takes them."""
    metadata: dict[str, Any] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Further fields of an imported log; written only if there are any."""
    flags: tuple[str, ...] = ()
    """Findings of the fidelity checks, e.g. `teacher:words`."""
    specs: str = ""
    """Fingerprint of task, protocol and cast."""
    version: str = ""
    """convbench version that wrote it."""
    ended: str = ""
    """UTC time the attempt ended, ISO 8601."""
