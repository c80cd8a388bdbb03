"""Base of all records and specs: frozen, unknown fields rejected, a canonical fingerprint; and how
two records differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from convbench.util.described import DescribedModel
from convbench.util.printable import STEERS
from convbench.util.words import Mode as Mode

Text = str | dict[Mode, str]
"""A Jinja template, or one for each mode."""

PythonRef = Annotated[
    str,
    StringConstraints(
        pattern=r"^([A-Za-z_][\w.]*|[^:\x00-\x1f]+\.py):[A-Za-z_]\w*$", max_length=200
    ),
]
"""`package.module:function` of an installed package, or `FILE.py:function`."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]
"""A spec's name: lower case, digits, dot, dash, underscore."""


def _check_printable(text: str) -> str:
    if STEERS.search(text):
        raise ValueError("found a control character; expected text without any")
    return text


Label = Annotated[str, AfterValidator(_check_printable)]
"""A name or title that is shown; it holds no control characters."""
ConversationId = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$", max_length=200)]
"""Id of a conversation: letters, digits, dot, dash, underscore, as in file names."""
JudgedId = Annotated[
    str, StringConstraints(pattern=r"^(\w[\w.-]*(#turn-[0-9]+)?|control:[a-z]+:[\s\S]*)$")
]
"""Id of what a judge scores: a conversation, one up to a turn, or a control about an example."""

Count = Annotated[int, Field(ge=0, lt=2**53)]
"""A number of things, below 2^53, which other programs hold exactly."""
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Dollars = Annotated[float, Field(ge=0)]
LARGEST_SCORE = 1e100
"""Largest score or reward, so that sums and squares stay finite."""
Score = Annotated[float, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE)]


def json_levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of a JSON value level by level: first the value itself, then the values in
    it, and so on; not recursive."""
    level = [value]
    while level:
        yield level
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]


class FrozenModel(DescribedModel):
    """Base of all records and specs."""

    OLD_KEYS: ClassVar[Mapping[str, str]] = {}
    """Older location of a field, as SECTION.KEY, to its name now; both are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def canonical_json(value: Any) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(*values: Any) -> str:
    """Return 16 hex digits that identify these values in this order; equal values give the same on
    any machine."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(canonical_json(value).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def pick_template(text: Text | None, mode: Mode) -> str | None:
    """Return the template of this mode, or None if there is none; a single template serves every
    mode."""
    return text.get(mode) if isinstance(text, dict) else text


def get_field(value: Any, key: str) -> Any:
    """Return a field of a dict or an attribute of an object, None if it is missing; for values
    before validation."""
    return value.get(key) if isinstance(value, dict) else getattr(value, key, None)


LONGEST_SHOWN = 60
"""Most characters of a value that are shown."""


def field_differences(key: str, old: Any, new: Any) -> list[str]:
    """Return a line `key: old → new` for every value that differs in nested dicts; empty if none
    does.

    Lines are sorted by key at each level, and the key of a nested value is dotted. A missing value
    is shown as None, a value of more than 60 characters cut. Lists are compared as a whole.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in sorted(set(old) | set(new))
            for line in field_differences(f"{key}.{name}", old.get(name), new.get(name))
        ]
    return [] if old == new else [f"{key}: {_shorten_value(old)} → {_shorten_value(new)}"]


def _shorten_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
