"""The batch seam: what sends many calls at once, for less, and brings their replies later."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.models.failures import BrokenReply
from convbench.models.prices import Price
from convbench.models.refusals import message
from convbench.net.tidy import loads
from convbench.schema import Completion, Message, Sampling

Outcome = Completion | ModelError
"""What became of one request."""
ID = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
"""Names that a provider may give a batch or a file: they become part of an address."""
PAGES = 20
"""Most pages of a provider's list of batches that are looked through."""
SENT = dict.fromkeys(("temperature", "top_p", "seed", "max_tokens")) | {
    "messages": [{"role": "system"}]
}
"""What a request that was refused is taken to have held, by whichever process it was sent."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """What a provider says of one batch."""

    status: str
    """In its own words."""
    ended: bool
    done: int = 0
    """Requests answered so far."""
    failed: int = 0
    """Requests that came to nothing so far."""
    files: tuple[str, ...] = ()
    """Where the results lie, once it has ended."""
    refused: str | None = None
    """Why none of it was taken."""
    full: bool = False
    """Refused because too many tokens wait already; it may be sent again later, or in parts."""


class Batches(ABC):
    """A model's way to take many calls at once. Errors are those of `Model.complete`.

    A batch is sent under a `mark` of ours, and each of its requests under a name that begins with
    it, so that a batch whose creation nobody saw the end of can be found again.
    """

    uploads: bool = False
    """Whether requests are put in a file first: without one no batch can have begun."""
    most_requests: int
    """Most requests of one batch."""
    most_bytes: int
    """Most bytes of one batch."""

    def __init__(self, ref: str, price: Price | None) -> None:
        self.ref, self._price = ref, price
        self._held: dict[str, Any] = {}

    @property
    def held(self) -> Mapping[str, Any]:
        """What a request may have held that was refused: enough to learn from the refusal."""
        return {**self._held, **SENT}

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many tokens in a batch; None where the price is unknown."""
        return self._price.of(prompt, reply) if self._price else None

    @abstractmethod
    def line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one request."""

    @abstractmethod
    def missing(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the parameters that were asked for and are not in such a request."""

    async def upload(self, mark: str, lines: Sequence[bytes]) -> str | None:
        """Put the requests where the provider wants them first; None where it wants no such."""
        return None

    @abstractmethod
    async def create(self, mark: str, file: str | None, lines: Sequence[bytes]) -> str:
        """Begin a batch; return its name. After a TransientModelError that is no rate limit it
        may have begun all the same."""

    @abstractmethod
    async def find(self, mark: str, file: str | None, since: float, total: int) -> list[str]:
        """Return the batches that may be the one of this mark, begun at `since` (seconds since the
        epoch) or later; the names in their results tell."""

    @abstractmethod
    async def look(self, batch: str) -> BatchState:
        """Return how far a batch is."""

    @abstractmethod
    def results(
        self, batch: str, state: BatchState, most: int
    ) -> AsyncIterator[tuple[str, Outcome] | None]:
        """Yield (name, outcome) in any order, None for a line that cannot be read. At most `most`
        bytes are read of a file."""

    @abstractmethod
    async def cancel(self, batch: str) -> None:
        """Ask the provider to end a batch; what is answered by then is still billed and kept."""

    async def aclose(self) -> None:
        """Release connections that are not the model's."""
        return

    def named(self, value: object) -> str:
        """Return a name that the provider gave; BrokenReply for what is none."""
        if isinstance(value, str) and ID.fullmatch(value):
            return value
        raise BrokenReply(f"{self.ref}: found {str(value)[:60]!r} as the name of a batch or file")


class Answers(Protocol):
    """What a model that has batches tells of refusals."""

    def learnt(self, status: int, text: str, sent: Mapping[str, Any]) -> bool:
        """Learn from a refusal; return whether the same call has a chance now."""
        ...

    def failure(self, status: int, text: str, headers: dict[str, str]) -> ModelError:
        """Return what a reply means that is not 200."""
        ...


def refusal(
    model: Answers, ref: str, status: int, body: bytes, sent: Mapping[str, Any]
) -> ModelError:
    """Return the error of one request that was refused; another try may do where the model has
    learnt from it what to leave out. `sent` is what the request may have held."""
    text = message(body)
    if model.learnt(status, text, sent):
        return TransientModelError(f"{ref}: HTTP {status}: {text}")
    return model.failure(status, text, {})


def record(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line of results that has a name; None for any other line."""
    try:
        found = loads(line)
    except ValueError:
        return None
    named = isinstance(found, dict) and isinstance(found.get("custom_id"), str)
    return found if named else None


def objects(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def whole(value: object) -> int:
    """Return a count; 0 for what is none."""
    return value if type(value) is int and 0 <= value < 10**9 else 0


def no_batches(*refs: str) -> str:
    """Return what is said where nothing of a command can go in batches."""
    return (
        f"--batch: calls of {', '.join(dict.fromkeys(refs))} cannot go in batches; expected a "
        "model of Anthropic or of an OpenAI-compatible server that has them, or leave --batch out"
    )


def gone(ref: str, batch: str) -> FatalModelError:
    """Return the error of a provider that does not know a batch that we sent."""
    return FatalModelError(
        f"{ref}: HTTP 404: no batch {batch}, or its results are gone; is this the key and the "
        "server that it was sent with? To send its calls again: convbench cancel RUN --forget"
    )


def unknown(ref: str, status: int, path: str) -> FatalModelError:
    """Return the error of a server that knows no batches."""
    return FatalModelError(f"{ref}: HTTP {status} at {path}; {no_batches(ref)}")
