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

from convbench.engine.caller import Caller, offload_read
from convbench.errors import DataError
from convbench.judges import model
from convbench.judges.ask import ReplyForm, ask_judge, judge_messages
from convbench.judges.replies import FENCE, Complaint
from convbench.judges.review.faults import (
    FAULTS,
    NAMES,
    Fault,
    FaultName,
    severity_counts,
    severity_words,
)
from convbench.judges.review.rules import make_fault
from convbench.judges.review.scene import HumanTurn, human_turns, simulated_humans
from convbench.judges.verdicts import scored_verdict, unscorable_verdict
from convbench.judges.work import Case, JudgeTools, JudgeWork, open_without_model
from convbench.schema import Verdict
from convbench.views import turn_texts

MOST = 50
"""Most faults that one reply may name."""


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault that a model names; `message` counts the human's own messages from 1."""

    fault: FaultName
    message: int


def faults_form(messages: int) -> ReplyForm[tuple[NamedFault, ...]]:
    """Return the form of a reply about this number of messages."""
    fault = {
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
        "properties": {"faults": {"type": "array", "items": fault}},
        "required": ["faults"],
        "additionalProperties": False,
    }
    return ReplyForm(lambda: schema, lambda text: read_faults(text, messages))


def read_faults(reply: str, messages: int) -> tuple[NamedFault, ...] | Complaint:
    """Return the faults that a reply names, each once and in order, or a complaint to send to the
    model; an empty tuple for `{"faults": []}`.

    The reply must be one JSON object with the key `faults` alone, at most in a code fence;
    `messages` is the largest number of a message.
    """
    fence = FENCE.match(reply)
    try:
        parsed: Any = json.loads(fence[1] if fence else reply)
    except (ValueError, RecursionError):
        return _make_complaint("found no JSON object", messages)
    listed = parsed.get("faults") if isinstance(parsed, dict) and len(parsed) == 1 else None
    if not isinstance(listed, list) or len(listed) > MOST:
        return _make_complaint(f"found no list of at most {MOST} faults", messages)
    out = []
    for entry in listed:
        name, number = (
            (entry.get("fault"), entry.get("message")) if isinstance(entry, dict) else (0, 0)
        )
        if name not in NAMES or type(number) is not int or not 1 <= number <= messages:
            return _make_complaint(f"found {str(entry)[:80]}", messages)
        out.append(NamedFault(name, number))
    return tuple(dict.fromkeys(out))


def _make_complaint(what: str, messages: int) -> Complaint:
    return Complaint(
        f'{what}; expected {{"faults": [{{"fault": NAME, "message": NUMBER}}, ...]}} and nothing '
        f"else, NAME one of {', '.join(NAMES)}, NUMBER from 1 to {messages}; "
        'where there is no fault {"faults": []}'
    )


REVIEWED = "reviewed"
"""In a verdict's details: the number of turns that were reviewed."""


@asynccontextmanager
async def open_kind(work: JudgeWork) -> AsyncIterator[tuple[Caller, JudgeTools]]:
    """Open the judge's model, if it names one, yield (caller, tools), and close it.

    The tools' `kind_state` is the model or None.

    Raise DataError if no speaker is simulated.
    """
    protocol = work.run.manifest.protocol
    if not simulated_humans(protocol):
        raise DataError(
            f"judge {work.judge.name}: protocol {protocol.name} has no speaker but the policy that "
            "speaks of its own; expected a simulated human to review, as in `collaboration`"
        )
    async with (model.open_kind if work.judge.model else open_without_model)(work) as opened_tools:
        yield opened_tools


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return the verdict from the faults that the judge's rules find and, if none of these is
    critical, those that its model names; the faults are in `details["faults"]`.

    It is a failed one if the model gave no readable reply. Raise DataError if the spec's function
    returns no list of faults.
    """
    judge, talk = case.judge, case.conversation
    seen = list(human_turns(talk, case.example, case.protocol))
    faults = await offload_read(partial(_by_rules, case), turn_texts(talk))
    usage: dict[str, Any] = {"details": {}}
    if tools.kind_state is not None and seen and all(fault.severity == "minor" for fault in faults):
        more, usage = await _by_model(case, tools, seen)
        if isinstance(more, tuple):
            kind, message, raw = more
            return unscorable_verdict(
                judge, talk.conversation_id, kind, message, reply=raw, **usage
            )
        known = {(fault.fault, fault.turn) for fault in faults}
        faults += [fault for fault in more if (fault.fault, fault.turn) not in known]
    details = {
        FAULTS: [fault.as_dict() for fault in faults],
        REVIEWED: len(seen),
        **usage.pop("details"),
    }
    return scored_verdict(
        judge,
        talk,
        case.protocol,
        severity_counts(faults),
        justifications=severity_words(faults),
        details=details,
        **usage,
    )


def _by_rules(case: Case) -> list[Fault]:
    """Return the faults that the spec's function finds. Raises DataError for another result."""
    function = case.judge.function
    assert function is not None
    faults = function(case.conversation, case.example, case.protocol)
    if not isinstance(faults, list) or not all(isinstance(fault, Fault) for fault in faults):
        raise DataError(
            f"judge {case.judge.name}: {case.judge.spec.function} returned "
            f"{type(faults).__name__}; "
            "expected a list of convbench.judges.review.faults.Fault"
        )
    return faults


async def _by_model(
    case: Case, tools: JudgeTools, seen: list[HumanTurn]
) -> tuple[list[Fault] | tuple[str, str, str | None], dict[str, Any]]:
    """Return (the model's faults, usage), or ((failure kind, message, last reply), usage) if no
    reply could be read."""
    judge, talk = case.judge, case.conversation
    assert tools.caller is not None
    assert judge.model is not None
    key = f"judge/{judge.fingerprint}/{talk.conversation_id}"
    asking = f"judge/{judge.fingerprint}/{talk.key}#{case.attempts}"
    messages = judge_messages(judge.spec, talk, case.example, several=case.several, key=asking)
    done = await ask_judge(
        tools.caller, tools.kind_state, judge, messages, key, case.attempts, faults_form(len(seen))
    )
    usage = model.usage_fields(done, case.attempts)
    if not isinstance(done.result, tuple):
        return model.failure_parts(done), usage
    return [
        make_fault(seen[named.message - 1], named.fault, judge.model) for named in done.result
    ], usage
