"""Judge kind `review`: reviews the simulated humans of a conversation by rules, and by a model if
the judge names one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from convbench.engine.caller import Caller, offload
from convbench.errors import DataError
from convbench.judge import model
from convbench.judge.ask import Form, ask, judge_messages
from convbench.judge.case import Case
from convbench.judge.replies import FENCE, Complaint
from convbench.judge.review.faults import FAULTS, NAMES, Fault, FaultName, counts, words
from convbench.judge.review.rules import made
from convbench.judge.review.scene import Scene, humans, scenes
from convbench.judge.verdicts import scored, unscorable
from convbench.judge.work import Tools, Work, plain
from convbench.schema import Verdict
from convbench.views import texts

MOST = 50
"""Most faults that one reply may name."""


@dataclass(frozen=True, slots=True)
class Named:
    """A fault that a model names; `message` counts the human's own messages from 1."""

    fault: FaultName
    message: int


def form(messages: int) -> Form[tuple[Named, ...]]:
    """Return the form of a reply about this number of messages."""
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
    """Return the faults that a reply names, or a complaint about it."""
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


REVIEWED = "reviewed"
"""In a verdict's details: the number of turns that were reviewed."""


@asynccontextmanager
async def opened(work: Work) -> AsyncIterator[tuple[Caller, Tools]]:
    """Open the judge's model, if it names one. Raises DataError if no speaker is simulated."""
    protocol = work.run.manifest.protocol
    if not humans(protocol):
        raise DataError(
            f"judge {work.judge.name}: protocol {protocol.name} has no speaker but the policy that "
            "speaks of its own; expected a simulated human to review, as in `collaboration`"
        )
    async with (model.opened if work.judge.model else plain)(work) as found:
        yield found


async def score(case: Case, tools: Tools) -> Verdict:
    """Return the verdict of the judge's rules, and of its model if the rules found nothing
    critical."""
    judge, talk = case.judge, case.conversation
    seen = list(scenes(talk, case.example, case.protocol))
    found = await offload(partial(_by_rules, case), texts(talk))
    usage: dict[str, Any] = {"details": {}}
    if tools.held is not None and seen and all(one.severity == "minor" for one in found):
        more, usage = await _by_model(case, tools, seen)
        if isinstance(more, tuple):
            kind, message, raw = more
            return unscorable(judge, talk.conversation_id, kind, message, reply=raw, **usage)
        known = {(one.fault, one.turn) for one in found}
        found += [one for one in more if (one.fault, one.turn) not in known]
    told = {FAULTS: [one.plain() for one in found], REVIEWED: len(seen), **usage.pop("details")}
    return scored(
        judge,
        talk,
        case.protocol,
        counts(found),
        justifications=words(found),
        details=told,
        **usage,
    )


def _by_rules(case: Case) -> list[Fault]:
    """Return the faults that the spec's function finds. Raises DataError for another result."""
    function = case.judge.function
    assert function is not None
    found = function(case.conversation, case.example, case.protocol)
    if not isinstance(found, list) or not all(isinstance(one, Fault) for one in found):
        raise DataError(
            f"judge {case.judge.name}: {case.judge.spec.function} gave {type(found).__name__}; "
            "expected a list of convbench.judge.review.faults.Fault"
        )
    return found


async def _by_model(
    case: Case, tools: Tools, seen: list[Scene]
) -> tuple[list[Fault] | tuple[str, str, str | None], dict[str, Any]]:
    """Return (the model's faults, usage), or ((failure kind, message, last reply), usage) if no
    reply could be read."""
    judge, talk = case.judge, case.conversation
    assert tools.caller is not None
    assert judge.model is not None
    key = f"judge/{judge.fingerprint}/{talk.conversation_id}"
    asking = f"judge/{judge.fingerprint}/{talk.key}#{case.asked}"
    messages = judge_messages(judge.spec, talk, case.example, several=case.several, key=asking)
    done = await ask(tools.caller, tools.held, judge, messages, key, case.asked, form(len(seen)))
    usage = model.used(done, case.asked)
    if not isinstance(done.result, tuple):
        return model.unread(done), usage
    return [made(seen[one.message - 1], one.fault, judge.model) for one in done.result], usage
