"""The interface of providers' batches: many calls are sent at once at a lower price, and their
replies arrive later."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from convbench.errors import FatalModelError, ModelError, TransientModelError
from convbench.models.failures import BrokenReply
from convbench.models.prices import Price
from convbench.models.refusals import error_message
from convbench.net.untrusted_json import loads
from convbench.schema import Completion, Message, Sampling

Outcome = Completion | ModelError
"""The result of one request: a reply or an error."""
ID = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
"""Valid names of a provider's batch or file, which become part of an address."""
PAGES = 20
"""Most pages of a provider's list of batches that are searched."""
SENT = dict.fromkeys(("temperature", "top_p", "seed", "max_tokens")) | {
    "messages": [{"role": "system"}]
}
"""Parameters that a refused request may have contained, whichever process sent it."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of one batch, as the provider reports it."""

    status: str
    """The status in the provider's own word."""
    ended: bool
    done: int = 0
    """Requests answered so far."""
    failed: int = 0
    """Requests that failed so far."""
    files: tuple[str, ...] = ()
    """Names of the files of results, once it has ended."""
    refused: str | None = None
    """Why the whole batch was refused; None if it was not."""
    full: bool = False
    """True if it was refused because too many tokens are queued; it may be sent again later, or in
    parts."""


class Batches(ABC):
    """The batches of one model. Errors are those of `Model.complete`.

    A batch is sent under a `mark` of ours, and each of its requests under a name that begins with
    the mark, so that a batch whose creation was not confirmed can be found again.
    """

    uploads: bool = False
    """Whether requests are uploaded as a file first; without the file no batch can exist."""
    most_requests: int
    """Most requests of one batch."""
    most_bytes: int
    """Most bytes of one batch."""

    def __init__(self, ref: str, price: Price | None) -> None:
        self.ref, self._price = ref, price
        self._held: dict[str, Any] = {}

    @property
    def possible_fields(self) -> Mapping[str, Any]:
        """Return fields that a refused request may have contained, to learn from its refusal.

        They are the fields of all requests built so far, with `temperature`, `top_p`, `seed` and
        `max_tokens` set to None and `messages` to one empty system message.
        """
        return {**self._held, **SENT}

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many prompt and reply tokens in a batch; None if the price is
        unknown."""
        return self._price.cost_of(prompt, reply) if self._price else None

    @abstractmethod
    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one request as JSON on one line, without a line break.

        Raise ModelError if it cannot be built.
        """

    @abstractmethod
    def unsent_parameters(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the sampling parameters that are set but not sent; empty if all are
        sent."""

    async def upload_requests(self, mark: str, lines: Sequence[bytes]) -> str | None:
        """Upload the requests and return the file's name; None if the provider takes no file."""
        return None

    @abstractmethod
    async def create_batch(self, mark: str, file: str | None, lines: Sequence[bytes]) -> str:
        """Create a batch and return its name. After a TransientModelError other than a rate limit
        it may have been created nevertheless."""

    @abstractmethod
    async def find_batches(
        self, mark: str, file: str | None, since: float, total: int
    ) -> list[str]:
        """Return the provider's names of batches that may be the one with this mark; empty without
        any.

        `since` (seconds since the epoch) is when it was created at the earliest, `total` the number
        of its requests. The names in their results show which one it is.
        """

    @abstractmethod
    async def get_state(self, batch: str) -> BatchState:
        """Return the state of a batch. Raise FatalModelError if the provider does not know it."""

    @abstractmethod
    def iter_results(
        self, batch: str, state: BatchState, most: int
    ) -> AsyncIterator[tuple[str, Outcome] | None]:
        """Yield (name, completion or error) in any order, and None for an invalid line.

        Raise BadBody if a file of results has more than `most` bytes.
        """

    @abstractmethod
    async def cancel_batch(self, batch: str) -> None:
        """Ask the provider to cancel a batch; what is answered by then is billed and collected."""

    async def aclose(self) -> None:
        """Close connections of its own, other than the model's."""
        return

    def check_name(self, value: object) -> str:
        """Return the provider's name of a batch or file unchanged.

        A name has 1 to 128 ASCII letters, digits, `_`, `.` and `-`, and begins with none of the
        last two. Raise BrokenReply for any other value.
        """
        if isinstance(value, str) and ID.fullmatch(value):
            return value
        raise BrokenReply(f"{self.ref}: found {str(value)[:60]!r} as the name of a batch or file")


class RefusalReader(Protocol):
    """The part of a model with batches that interprets refusals."""

    def learn_refusal(self, status: int, text: str, sent: Mapping[str, Any]) -> bool:
        """Remember what to leave out of later calls; return True if the same call may succeed
        now."""
        ...

    def status_error(self, status: int, text: str, headers: dict[str, str]) -> ModelError:
        """Return, without raising it, the error for a reply whose status is not 200."""
        ...


def refusal_error(
    model: RefusalReader, ref: str, status: int, body: bytes, sent: Mapping[str, Any]
) -> ModelError:
    """Return, without raising it, the error of a refused request.

    If the model learns from the refusal which field to leave out, it is a TransientModelError, so
    that the call is tried again; else it is the model's error for this status. `sent` holds the
    fields that the request may have contained.
    """
    text = error_message(body)
    if model.learn_refusal(status, text, sent):
        return TransientModelError(f"{ref}: HTTP {status}: {text}")
    return model.status_error(status, text, {})


def parse_result(line: bytes) -> dict[str, Any] | None:
    """Return a line of results as an object whose `custom_id` is a text, else None.

    The line is read leniently (`loads`): bytes that are not UTF-8 become U+FFFD, and NaN becomes
    None. Return None for what is no JSON even so, for any other JSON value, and for an object
    without such a `custom_id`.
    """
    try:
        result = loads(line)
    except ValueError:
        return None
    named = isinstance(result, dict) and isinstance(result.get("custom_id"), str)
    return result if named else None


def as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, the same object; an empty dict for any other value."""
    return value if isinstance(value, dict) else {}


def as_count(value: object) -> int:
    """Return an integer from 0 to below a billion unchanged; 0 for any other value, bools
    included."""
    return value if type(value) is int and 0 <= value < 10**9 else 0


def no_batches(*refs: str) -> str:
    """Return the message that calls of these models cannot go in batches; each name appears
    once."""
    return (
        f"--batch: calls of {', '.join(dict.fromkeys(refs))} cannot go in batches; expected a "
        "model of Anthropic or of an OpenAI-compatible server that has them, or leave --batch out"
    )


def missing_batch_error(ref: str, batch: str) -> FatalModelError:
    """Return, without raising it, the error for a batch of this run that the provider does not
    know."""
    return FatalModelError(
        f"{ref}: HTTP 404: no batch {batch}, or its results are gone; is this the key and the "
        "server that it was sent with? To send its calls again: convbench cancel RUN --forget"
    )


def no_batches_error(ref: str, status: int, path: str) -> FatalModelError:
    """Return, without raising it, the error for a server that answers `status` at `path`: no
    batches."""
    return FatalModelError(f"{ref}: HTTP {status} at {path}; {no_batches(ref)}")
