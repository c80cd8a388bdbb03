"""The model seam: one async method behind which every kind of speaker stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from convbench.models.batch import Batches
from convbench.schema import Completion, Message, Sampling
from convbench.words import Structured


@runtime_checkable
class Model(Protocol):
    """Something that answers messages. What a model can do beyond that has a default here, which
    a model that can do otherwise replaces; whoever asks for an ability asks by these names.

    `complete` raises TransientModelError where another try may help and FatalModelError where
    none will; it does not retry by itself. `key` names the call (conversation and turn): models
    that draw random numbers seed their stream with `sampling.seed` and it, so that neither order
    nor resume shifts a reply.
    """

    ref: str
    """The model reference it was opened with, e.g. `openai/gpt-4o-mini` or `local:PATH`."""
    priced: bool
    """True where the dollars of a call are known (0 for a local model)."""
    concurrency: int | None = None
    """Calls at once that it does best with; None leaves it to the user."""
    caches: int | None = None
    """Tokens from which on a beginning of a prompt that was sent before costs less; None where it
    does not, or nobody knows."""
    patient: bool = False
    """An attempt has no time limit: it runs in this process and ends by itself."""
    headroom: int = 0
    """Tokens that it may spend on a reply beyond `max_tokens` (thinking)."""
    starts: bool = False
    """Something must be started before the first call (a server, weights to load): `start`."""

    structured: Structured = "text"
    """How it is made to reply by a JSON schema; `text` where it is not."""
    batches: Batches | None = None
    """What takes many calls of it at once, for less; None where nothing does."""

    @property
    def endpoint(self) -> str:
        """The name under which calls share a rate limit: the server's, else the model's."""
        return self.ref

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the list price of so many tokens in dollars; None where it is unknown."""
        return 0.0 if self.priced else None

    def check(self) -> None:
        """Refuse where no call could be made: a key, package or program is missing. Nothing is
        sent, started or loaded. Raises FatalModelError, MissingDependency."""
        return

    async def start(self) -> None:
        """Start what must be; called once, before the first call, where `starts`."""
        return

    binds: ClassVar[bool] = False
    """Whether `bind` makes a model of its own for each example."""

    def bind(self, fields: Mapping[str, Any]) -> Model:
        """Return the model for one example, whose fields a rule may see."""
        return self

    @property
    def identity(self) -> Mapping[str, Any] | None:
        """What its replies hang on beside messages and sampling: address, fields of its requests.
        None where a reply cannot be had again, or need not be kept (rules, models that run
        here)."""
        return None

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply to the last message."""
        ...

    async def aclose(self) -> None:
        """Release connections, processes and memory."""
        ...
