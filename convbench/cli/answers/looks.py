"""What commands that show, list and check have to tell."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from convbench.cli.envelope import Answer


class VerifiedAnswer(Answer):
    """One thing that `verify` looked at."""

    what: str
    """run, report, checkpoint, set or model, and where it lies."""
    found: str
    """What was compared."""
    problems: list[str]
    """What is not as it was written, or not as the records give it."""


class VerifyAnswer(Answer):
    """`verify`: whether everything is as it was written and every figure can be computed again."""

    target: str
    """What was verified."""
    ok: bool
    """Whether nothing is wrong; else the exit code is 1."""
    checked: list[VerifiedAnswer]
    """All that was looked at."""


class RunRow(Answer):
    """One run."""

    run: str
    """Its folder."""
    kind: str
    """How it came to be."""
    task: str
    """The task."""
    mode: str
    """thinking or standard."""
    policy: str
    """Reference of the policy."""
    conversations: int
    """Conversations it holds."""
    failed: int
    """Conversations that ended in a recorded failure."""
    judges: list[str]
    """Who has judged it."""
    evals: int
    """Child runs."""
    usd: float | None
    """What its calls cost, judges' too; null where a price is unknown."""
    created: str
    """UTC time."""
    latest: bool
    """Whether it is what `runs/latest` points to."""
    tags: list[str]
    """Its tags."""
    note: str | None
    """Its note."""


class SpecRow(Answer):
    """One spec or model."""

    name: str
    """Its name."""
    about: str
    """Its title."""
    file: str
    """Where it lies; empty for a model."""


class ListAnswer(Answer):
    """`list`: what there is."""

    specs: dict[str, list[SpecRow]]
    """Specs and models by kind."""
    runs: list[RunRow]
    """Runs, the newest first."""


class ShowAnswer(Answer):
    """`show`: a spec with its prompts, or a conversation with its verdicts."""

    kind: str
    """What it is: task, protocol, judge, recipe, experiment, launch, model or conversation."""
    name: str
    """Its name, or its id."""
    value: dict[str, Any]
    """The spec as resolved, or the record."""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    """Prompts on a sample, in order."""
    reply_schema: dict[str, Any] | None = None
    """Of a judge: the schema that goes along to a model that takes one."""
    verdicts: list[dict[str, Any]] = Field(default_factory=list)
    """Verdicts on a conversation."""


class FindingAnswer(Answer):
    """One line of `doctor`."""

    what: str
    """What was looked at."""
    state: str
    """ok, missing or note."""
    found: str
    """What was found."""
    fix: str
    """What to do."""
    needed: bool
    """Whether nothing works without it."""


class DoctorAnswer(Answer):
    """`doctor`: what is installed, reachable and missing."""

    findings: list[FindingAnswer]
    """All that was looked at."""


class ModelsAnswer(Answer):
    """`models`: a model that was fetched."""

    model: str
    """Its reference."""
    source: str
    """Where it is from."""
    folder: str
    """Where it lies."""


class ViewAnswer(Answer):
    """`view`: pages that were written, or the address where they are served."""

    address: str | None
    """Where the pages are served."""
    folder: str | None
    """Where they were written."""
    conversations: int | None
    """Conversations in them; None where runs are chosen in the page."""


class MadeAnswer(Answer):
    """`init`: a file that was made."""

    kind: str
    """task, protocol, judge or recipe."""
    name: str
    """Its name."""
    file: str
    """Where it lies."""
