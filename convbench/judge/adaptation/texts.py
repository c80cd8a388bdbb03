"""From a self-edit to the texts it is trained on."""

from __future__ import annotations

import re
from collections.abc import Mapping

from convbench.errors import DataError
from convbench.judge.adaptation.settings import Inner

_FIELD = re.compile(r"\{(title|line)\}")
"""What of `Inner.line` is filled in: no format may name more, or ask for a width."""


def training_texts(edit: str | None, title: str, passage: str, inner: Inner) -> list[str]:
    """Return the texts: every line of the edit under the title, then the passage.

    `edit` None trains on the passage alone. Lines without a letter or digit are none. Raises
    DataError for an edit that has no line, which is no edit.
    """
    texts = []
    if edit is not None:
        lines = [line.strip() for line in edit.splitlines()]
        texts = [
            _filled(inner.line, {"title": title, "line": line})
            for line in lines
            if any(sign.isalnum() for sign in line)
        ]
        if not texts:
            raise DataError(f"the self-edit {edit[:60]!r} has no line to train on")
    return [*texts, passage] if inner.passage or edit is None else texts


def _filled(form: str, values: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda found: values[found[1]], form)


def steps(texts: int, inner: Inner) -> int:
    """Return the optimiser steps that this many texts take."""
    batches = -(-texts // inner.batch_size)
    return inner.epochs * -(-batches // inner.accumulation)
