"""The interface of models: one async method for every kind of speaker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from convbench.models.batch import Batches
from convbench.schema import Completion, Message, Sampling
from convbench.words import Structured


@runtime_checkable
class Model(Protocol):
    """A model answers messages. Further abilities have a default here, which a model with that
    ability overrides; callers ask for an ability by these names.

    `complete` raises TransientModelError where another try may help and FatalModelError where
    none will; it does not retry by itself. `key` names the call (conversation and turn): models
    that draw random numbers seed their stream with `sampling.seed` and `key`, so that neither order
    nor resume changes a reply.
    """

    ref: str
    """The model reference with which it was opened, e.g. `openai/gpt-4o-mini` or `local:PATH`."""
    priced: bool
    """True if the dollars of a call are known (0 for a local model)."""
    concurrency: int | None = None
    """Best number of concurrent calls; None leaves it to the user."""
    caches: int | None = None
    """Fewest tokens of a repeated prompt prefix that cost less; None if none do, or unknown."""
    patient: bool = False
    """True if an attempt has no time limit: it runs in this process and ends by itself."""
    headroom: int = 0
    """Tokens that it may spend on a reply beyond `max_tokens` (thinking)."""
    starts: bool = False
    """True if `start` must run before the first call (a server, weights to load)."""

    structured: Structured = "text"
    """How it is made to reply by a JSON schema; `text` if it is not."""
    batches: Batches | None = None
    """Its interface for batches; None if it has none."""

    @property
    def endpoint(self) -> str:
        """The name under which calls share a rate limit: the server's, else the model's."""
        return self.ref

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the list price of so many tokens in dollars; None if it is unknown."""
        return 0.0 if self.priced else None

    def check(self) -> None:
        """Raise FatalModelError or MissingDependency if no call could be made: a key, package or
        program is missing. Nothing is sent, started or loaded."""
        return

    async def start(self) -> None:
        """Start servers or load weights; called once before the first call if `starts` is True."""
        return

    binds: ClassVar[bool] = False
    """Whether `bind` makes a model of its own for each example."""

    def bind(self, fields: Mapping[str, Any]) -> Model:
        """Return the model for one example, whose fields a rule may see."""
        return self

    @property
    def identity(self) -> Mapping[str, Any] | None:
        """What its replies depend on besides messages and sampling: address, fields of requests.
        None if its replies are not cached (rules, models that run here)."""
        return None

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply to the last message."""
        ...

    async def aclose(self) -> None:
        """Release connections, processes and memory."""
        ...
