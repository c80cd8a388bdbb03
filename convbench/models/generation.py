"""One call of a batch, as it grows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from convbench.models.sampler import Stream
from convbench.schema import Sampling


@dataclass(eq=False)
class Generation:
    """One call in the batch: its prompt, then its reply as it grows."""

    tokens: list[int]
    """Token ids of prompt and reply so far."""
    prompt: int
    """How many of them are the prompt."""
    limit: int
    """Most tokens of the reply."""
    sampling: Sampling
    """How to draw."""
    stream: Stream
    """Its random numbers."""
    done: asyncio.Future[None]
    """Set in the loop when the reply is whole."""
    alike: tuple[object, ...] = ()
    """Names of calls whose beginning this one may share, best first."""
    names: tuple[object, ...] = ()
    """Names under which later calls find this one."""
    cached: int = 0
    """Tokens whose keys and values are in the slot."""
    slot: int = -1
    """Its slot; -1 before it has one."""
    active: bool = False
    """True from getting a slot to the end."""
    ended: bool = False
    """True where the model ended the reply itself."""
    parked: int = 0
    """When it ended, in turns of the batch."""
    probs: list[tuple[float, float]] = field(default_factory=list)
    """Of each token of the reply (log pi, log of its chance), where they are asked for."""

    @property
    def reply(self) -> list[int]:
        """Token ids of the reply, the end token included."""
        return self.tokens[self.prompt :]

    @property
    def over(self) -> bool:
        """True when there is nothing more to draw."""
        return self.ended or len(self.tokens) - self.prompt >= self.limit or self.done.cancelled()


def succeed(futures: list[asyncio.Future[None]]) -> None:
    """Tell those who wait that it is done; in the loop."""
    for future in futures:
        if not future.done():
            future.set_result(None)


def fail(futures: list[asyncio.Future[None]], error: Exception) -> None:
    """Tell those who wait what went wrong; in the loop."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
