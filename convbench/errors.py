"""Every error convbench raises on purpose, one tree.

ConvbenchError
├── UsageError           options or words that do not go together, whatever lies on the disk
├── SpecError            a YAML spec is wrong: file, key, found, expected
├── DataError            question rows are missing, too few or of another shape
│   └── UnsupportedTask       a task whose reference gives nothing that can be compared here
├── HubError             the Hub cannot be reached, refuses, or lacks what was asked for
├── RunError             a run directory is missing, locked, damaged or of other specs
│   └── NotRegularError       a link, pipe or device lies where a file should; an OSError too
├── QueryError           SQL that is wrong or may not run
├── ModelError           a model call failed for good
│   ├── TransientModelError   worth another try: rate limit, server fault
│   │   ├── BrokenReply       sent, and nothing usable came back: it may be billed
│   │   └── Unreachable       no connection could be made
│   └── FatalModelError       no use trying again: key, name, parameter, context length
├── BudgetError          the next call would pass the budget
├── PreflightError       something that a later step needs is missing
├── TrainError           a learner cannot start or has failed
└── MissingDependency    a package or program is not installed; says how to install it

A message is one line: what was found, what was expected, what to do. Where many things are wrong
alike it says the first, and the others are notes of the exception (`add_note`), a line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of an answered call as the provider reports them; None if it does not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


class ConvbenchError(Exception):
    """Base class of all errors that a user can fix; the CLI shows the text as one line."""

    exit_code: ClassVar = 1
    """Exit code of the CLI."""


class RetiredNameWarning(FutureWarning):
    """Issued for a name that the next minor release does not read: it says the name to use. The CLI
    shows it as a note."""


class UsageError(ConvbenchError):
    """Options or words that do not go together, whatever lies on the disk."""

    exit_code: ClassVar = 2


class SpecError(ConvbenchError):
    """A spec is wrong. The text names file, key, what was found and what was expected."""


class DataError(ConvbenchError):
    """Question rows are missing, too few, or not of the shape the task declares."""


class UnsupportedTask(DataError):
    """A task's reference gives nothing that an answer can be compared with here."""


class HubError(ConvbenchError):
    """The Hub cannot be reached, refuses, or does not hold what was asked for."""


class RunError(ConvbenchError):
    """A run directory is missing, locked, damaged, or was made with other specs."""


class NotRegularError(RunError, OSError):
    """A link, pipe or device is in the place of a regular file. It is an OSError too, so that code
    which reports unreadable files reports it as well."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class QueryError(ConvbenchError):
    """A query is not valid SQL, may not run, or exceeds a limit."""


class ModelError(ConvbenchError):
    """A model call failed for good.

    `usage` is set if the provider answered, though uselessly: the answer is billed, by `usage` or
    by estimate if that is empty. None if there was no answer.
    """

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage


class TransientModelError(ModelError):
    """A call failed in a way that another try may fix.

    `retry_after` is in seconds, if the provider sent it; `rate_limited` is true for status 429.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        rate_limited: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, usage=usage)
        self.retry_after = retry_after
        self.rate_limited = rate_limited


class BrokenReply(TransientModelError):
    """A request was sent and gave nothing usable: cut JSON, empty content, a timeout, a reset.

    The provider may bill it, even if it reported no `usage`.
    """


class Unreachable(TransientModelError):
    """No connection could be made: no listener, or no such host. Nothing was sent."""


class FatalModelError(ModelError):
    """A call that would fail again: wrong key, unknown model, refused parameter, too long.

    `stops_run` is false if it concerns only one conversation (its context is too long).
    """

    def __init__(self, message: str, *, stops_run: bool = True, usage: Usage | None = None) -> None:
        super().__init__(message, usage=usage)
        self.stops_run = stops_run


class ToolError(Exception):
    """A tool failed; the message is what the model is told."""


class BudgetError(ConvbenchError):
    """The next call would pass the budget of dollars or tokens."""


class TrainError(ConvbenchError):
    """A learner cannot start, or failed while running."""


class MissingDependency(ConvbenchError):
    """A package or program is needed and not installed."""

    def __init__(self, what: str, *, needed_for: str, install: str) -> None:
        super().__init__(f"{needed_for} needs {what}, which is not installed; run: {install}")


class PreflightError(ConvbenchError):
    """Something that a later step needs is missing; `missing` has one line for each."""

    def __init__(self, missing: Sequence[str]) -> None:
        lines = "; ".join(missing)
        count = "1 thing is" if len(missing) == 1 else f"{len(missing)} things are"
        super().__init__(f"{count} missing, so nothing was started: {lines}")
        self.missing = tuple(missing)
