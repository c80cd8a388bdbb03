"""What a model is asked about a simulated human, and how its reply is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from convbench.judge.ask import Form
from convbench.judge.replies import FENCE, Complaint
from convbench.judge.review.faults import NAMES, FaultName

MOST = 50
"""Most faults that one reply may name."""


@dataclass(frozen=True, slots=True)
class Named:
    """A fault that a model names, in the human's n-th own message, from 1."""

    fault: FaultName
    message: int


def form(messages: int) -> Form[tuple[Named, ...]]:
    """Return what a reply about so many messages is to be."""
    one = {
        "type": "object",
        "properties": {
            "fault": {"type": "string", "enum": list(NAMES)},
            "message": {"type": "integer", "minimum": 1, "maximum": messages},
        },
        "required": ["fault", "message"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"faults": {"type": "array", "items": one}},
        "required": ["faults"],
        "additionalProperties": False,
    }
    return Form(lambda: schema, lambda text: read(text, messages))


def read(reply: str, messages: int) -> tuple[Named, ...] | Complaint:
    """Return the faults that a reply names, or what is wrong with it."""
    fence = FENCE.match(reply)
    try:
        found: Any = json.loads(fence[1] if fence else reply)
    except (ValueError, RecursionError):
        return _complaint("found no JSON object", messages)
    listed = found.get("faults") if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(listed, list) or len(listed) > MOST:
        return _complaint(f"found no list of at most {MOST} faults", messages)
    out = []
    for one in listed:
        name, number = (one.get("fault"), one.get("message")) if isinstance(one, dict) else (0, 0)
        if name not in NAMES or type(number) is not int or not 1 <= number <= messages:
            return _complaint(f"found {str(one)[:80]}", messages)
        out.append(Named(name, number))
    return tuple(dict.fromkeys(out))


def _complaint(what: str, messages: int) -> Complaint:
    return Complaint(
        f'{what}; expected {{"faults": [{{"fault": NAME, "message": NUMBER}}, ...]}} and nothing '
        f"else, NAME one of {', '.join(NAMES)}, NUMBER from 1 to {messages}; "
        'where there is no fault {"faults": []}'
    )
