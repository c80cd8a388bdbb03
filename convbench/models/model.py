"""The interface of models: one async method for every kind of speaker."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

from convbench.schema import Completion, Message, Sampling
from convbench.util.words import Structured

Messages = Sequence[Message]


class Model:
    """A model answers messages; further abilities have a default here."""

    ref: str
    """The model reference with which it was opened, e.g. `openai/gpt-4o-mini` or `local:PATH`."""
    priced: bool
    """True if the dollars of a call are known (0 for a local model)."""
    concurrency: int | None = None
    """Best number of concurrent calls; None leaves it to the user."""
    copies: int = 1
    """Copies of it that share the calls; each takes as many at once as one alone."""
    patient: bool = False
    """True if an attempt has no time limit: it runs in this process and ends by itself."""
    headroom: int = 0
    """Tokens that it may spend on a reply beyond `max_tokens` (thinking)."""
    starts: bool = False
    """True if `start` must run before the first call (a server, weights to load)."""
    structured: Structured = "text"
    """How it is made to reply by a JSON schema; `text` if it is not."""
    batches: Any = None
    """Its interface for batches (`models.batches.Batches`); None if it has none."""
    binds: bool = False
    """Whether it sees `example`, the fields of one conversation's, by `bind`."""
    example: Mapping[str, Any] = {}

    @property
    def endpoint(self) -> str:
        """Return the name under which calls share a rate limit; by default the reference."""
        return self.ref

    @property
    def identity(self) -> Mapping[str, Any] | None:
        """Return what its replies depend on besides messages and sampling, as JSON data; None (the
        default) if they are not cached: rules, models that run here."""
        return None

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many prompt and reply tokens; None if the price is unknown."""
        return 0.0 if self.priced else None

    def check(self) -> None:
        """Raise FatalModelError or MissingDependency if no call could be made: a key, package or
        program is missing. Nothing is sent, started or loaded."""

    async def start(self) -> None:
        """Start servers or load weights; called before the first call if `starts` is True."""

    def bind(self, fields: Mapping[str, Any]) -> Self:
        """Return the model for the example with these fields."""
        bound = copy.copy(self)
        bound.example = fields
        return bound

    async def complete(self, messages: Messages, sampling: Sampling, *, key: str) -> Completion:
        """Return the reply to the last message; the messages before it are its context.

        `key` names the call (conversation and turn): models that draw random numbers seed their
        stream with `sampling.seed` and `key`, so that neither order nor resume changes a reply.
        Raise TransientModelError if another try may help, FatalModelError if none will: nothing is
        retried here.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release connections, processes and memory. It may be called more than once."""


def no_batches(*refs: str) -> str:
    """Return the message that calls of these models cannot go in batches."""
    return (
        f"--batch: calls of {', '.join(dict.fromkeys(refs))} cannot go in batches; expected a "
        "model of Anthropic or of an OpenAI-compatible server that has them, or leave --batch out"
    )
