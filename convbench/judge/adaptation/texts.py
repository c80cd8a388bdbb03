"""From a self-edit to the texts it is trained on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from convbench.errors import DataError
from convbench.judge.adaptation.settings import Inner

_RULE = re.compile(r"^-{3,}$")
"""A line that parts an edit."""
_QUESTION = re.compile(r"^\W*+question\s*+\d*+\s*+[:.)]", re.IGNORECASE)
"""How a line begins that a question with its answer begins with."""
_FIELD = re.compile(r"\{(title|line)\}")
"""What of `Inner.line` is filled in: no format may name more, or ask for a width."""


def training_texts(edit: str | None, title: str, passage: str, inner: Inner) -> list[str]:
    """Return the texts: every part of the edit under the title, then the passage.

    `edit` None trains on the passage alone. Parts without a letter or digit are none. Raises
    DataError for an edit that has no part, which is no edit.
    """
    texts = []
    if edit is not None:
        texts = [_filled(inner.line, {"title": title, "line": part}) for part in parts(edit, inner)]
        if not texts:
            raise DataError(f"the self-edit {edit[:60]!r} has no line to train on")
    return [*texts, passage_text(title, passage, inner)] if inner.passage or not texts else texts


def passage_text(title: str, passage: str, inner: Inner) -> str:
    """Return the passage as it is trained on."""
    return _filled(inner.line, {"title": title, "line": passage}) if inner.titled else passage


def parts(edit: str, inner: Inner) -> list[str]:
    """Return what of an edit each becomes a text, as `Inner.texts` says."""
    lines = [line.strip() for line in edit.splitlines()]
    if inner.texts == "whole":
        found = ["\n".join(lines).strip()]
    elif inner.texts == "paper" and any(_RULE.fullmatch(line) for line in lines):
        found = _joined(lines, _RULE, keep=False)
    elif inner.texts == "paper" and any(_QUESTION.match(line) for line in lines):
        found = _joined(lines, _QUESTION, keep=True)
    else:
        found = [line for line in lines if line]
        if inner.texts == "paper" and len(found) > 1 and found[1].startswith("1."):
            found = found[1:]
    return [part for part in found if any(sign.isalnum() for sign in part)]


def _joined(lines: Sequence[str], begins: re.Pattern[str], *, keep: bool) -> list[str]:
    """Return the lines as parts, a new one from each line that begins one; `keep` that line."""
    found: list[list[str]] = [[]]
    for line in lines:
        if begins.match(line):
            found.append([line] if keep else [])
        elif line:
            found[-1].append(line)
    return ["\n".join(part) for part in found]


def _filled(form: str, values: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda found: values[found[1]], form)


def steps(texts: int, inner: Inner) -> int:
    """Return the optimiser steps that this many texts take."""
    batches = -(-texts // inner.batch_size)
    return inner.epochs * -(-batches // inner.accumulation)
