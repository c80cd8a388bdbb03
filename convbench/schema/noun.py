"""What every noun shares: frozen, nothing unknown accepted, a canonical fingerprint, and how two
records differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from convbench.described import Described
from convbench.printable import STEERS

Mode = Literal["thinking", "standard"]
"""Whether the policy is told to reason inside `<thinking>` tags."""

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


def _shown(text: str) -> str:
    if STEERS.search(text):
        raise ValueError("found a control character; expected text without any")
    return text


Label = Annotated[str, AfterValidator(_shown)]
"""A name or title that is shown: nothing in it steers a terminal."""
ConversationId = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$", max_length=200)]
"""What names a conversation: letters, digits, dot, dash, underscore, as files may be named."""
JudgedId = Annotated[
    str, StringConstraints(pattern=r"^(\w[\w.-]*(#turn-[0-9]+)?|control:[a-z]+:[\s\S]*)$")
]
"""What a judge scores: a conversation, one up to a turn, or a control about an example."""

Count = Annotated[int, Field(ge=0, lt=2**53)]
"""A number of things; larger ones are no counts, and other programs do not hold them."""
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Dollars = Annotated[float, Field(ge=0)]
LARGEST = 1e100
"""Largest score or reward: sums and squares of larger ones are beyond all numbers."""
Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class Noun(Described):
    """Base of all records and specs."""

    MOVED: ClassVar[Mapping[str, str]] = {}
    """Where a field lay in older files, as SECTION.KEY, to its name now; both are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def canonical(value: Any) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(*values: Any) -> str:
    """Return 16 hex digits that name these values; equal values on any machine agree."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(canonical(value).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def pick(text: Text | None, mode: Mode) -> str | None:
    """Return the template of this mode, None where there is none for it."""
    return text.get(mode) if isinstance(text, dict) else text


def part_of(value: Any, key: str) -> Any:
    """Return a field of what is a mapping, or an object already, before it is checked."""
    return value.get(key) if isinstance(value, dict) else getattr(value, key, None)


LONGEST = 60
"""Characters of a value that are shown."""


def differences(key: str, old: Any, new: Any) -> list[str]:
    """Return `key: old → new` for every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in sorted(set(old) | set(new))
            for line in differences(f"{key}.{name}", old.get(name), new.get(name))
        ]
    return [] if old == new else [f"{key}: {_short(old)} → {_short(new)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
