"""The model seam: one async method behind which every kind of speaker stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from convbench.schema import Completion, Message, Sampling


@runtime_checkable
class Model(Protocol):
    """Something that answers messages.

    `complete` raises TransientModelError where another try may help and FatalModelError where
    none will; it does not retry by itself. `key` names the call (conversation and turn): models
    that draw random numbers seed their stream with `sampling.seed` and it, so that neither order
    nor resume shifts a reply.
    """

    ref: str
    """The model reference it was opened with, e.g. `openai/gpt-4o-mini` or `local:PATH`."""
    priced: bool
    """True where the dollars of a call are known (0 for a local model)."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply to the last message."""
        ...

    async def aclose(self) -> None:
        """Release connections, processes and memory."""
        ...
