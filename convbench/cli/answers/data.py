"""What commands that hand on conversations have to tell."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from convbench.cli.envelope import Answer


class QueryAnswer(Answer):
    """`query`: the rows."""

    columns: list[str]
    """Names of the columns."""
    rows: list[dict[str, Any]]
    """Rows, by column."""


class ExportAnswer(Answer):
    """`export`: files in another trainer's format."""

    files: dict[str, str]
    """File by split."""
    rows: dict[str, int]
    """Rows by split."""
    failed: int
    """Failed conversations, left out."""
    flagged: int
    """Flagged conversations, left out."""
    left_out: int
    """Conversations of weight 0 or less, or without a verdict, left out."""


class PublishAnswer(Answer):
    """`publish`: a set or a model on the Hub, or the folder that would be sent."""

    repo: str
    """USER/NAME."""
    url: str | None
    """Its address; null on a dry run."""
    commit: str | None
    """The commit; null on a dry run."""
    changed: bool
    """Whether anything was new there."""
    folder: str | None
    """What would be sent, on a dry run."""
    rows: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Rows by config and split, of a set."""
    files: dict[str, int] = Field(default_factory=dict)
    """Sizes in bytes by path, of a model."""
