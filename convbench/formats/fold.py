"""From the logged shape to the turns of a run, once for all formats.

    user     "How warm is it?"                user     "How warm is it?"
    assistant calls weather     (group g)     assistant rounds: weather -> "7"
    tool     "7"                        ->              "It is 7 degrees."
    assistant "It is 7 degrees."

Pieces of one reply are joined; a call opens a round, and a result is paired with the open call of
its id, else with the first open one, since ids are lost and repeated; text after calls is the turn.
What does not fit is kept as it can be kept, and counted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from convbench.formats.log import Call, Item, LeftOut, LogConversation, LogMessage
from convbench.formats.values import parsed
from convbench.schema import Reasoning, ToolCall, ToolResult, ToolRound, Turn, canonical_json
from convbench.schema.chat import FinishReason

CUT = ("length", "max_tokens", "max_output_tokens", "incomplete")
"""Why a reply ended that was cut, as it is logged, in small letters."""
SPEAKERS = {"user": ("teacher", "say"), "system": ("system", "note")}
"""(speaker, step) of a message that is not the policy's, by its role."""
LOOKED = 8
"""Turns in which the call of a result is looked for."""


@dataclass
class _Turn:
    """A turn that is not finished: one message of another, or the policy's replies with calls and,
    if it said something after them, that."""

    replies: list[LogMessage]
    results: dict[tuple[int, int], LogMessage] = field(default_factory=dict)
    """Results by the places of the reply and of its call."""

    @property
    def is_own(self) -> bool:
        """Return whether the assistant said or called it."""
        return self.replies[0].role == "assistant"

    @property
    def is_open(self) -> bool:
        """Return whether it ends with calls, so that what the assistant says next belongs to it."""
        return self.is_own and bool(self.replies[-1].calls)

    def takes(self, message: LogMessage) -> bool:
        """Return whether the assistant's next message belongs to it: either all of it is learnt or
        none."""
        return self.is_open and self.replies[-1].context == message.context

    def add(self, message: LogMessage) -> None:
        """Add a reply; calls that were logged apart from those before them are one reply's."""
        last = len(self.replies) - 1
        has_results = any(reply == last for reply, _ in self.results)
        if message.calls and not (has_results or message.text or message.reasoning):
            self.replies[-1].calls += message.calls
        else:
            self.replies.append(message)

    def open_call(self, mark: str | None) -> tuple[int, int] | None:
        """Return the place of the first call without a result, of this id if one is given, in the
        newest reply that has one."""
        for number in reversed(range(len(self.replies))):
            for place, call in enumerate(self.replies[number].calls):
                if (number, place) not in self.results and mark in (None, call.id):
                    return number, place
        return None


@dataclass
class Folded:
    """A conversation as turns."""

    system: str | None
    turns: tuple[Turn, ...]


def fold(log: LogConversation, counts: Counter[str], policy: str | None = None) -> Folded:
    """Return the turns of a conversation; what was joined, cut or unpaired is added to `counts`.

    `policy` is who is learnt, where several spoke: a name, a role or a model. Raise LeftOut if
    there is no word of a policy, or its last reply is empty.
    """
    messages = _join_groups(_cast(log.messages, policy))
    system: list[str] = []
    while messages and messages[0].role == "system":
        text = messages.pop(0).text
        if text and text not in system:
            system.append(text)
    turns = _read_turns(messages, counts)
    if not any(turn.is_own for turn in turns):
        names = sorted({m.name for m in messages if m.name and m.role == "user"})
        who = f"; who spoke: {', '.join(names[:5])}; --policy {names[0]}" if names else ""
        raise LeftOut(f"no word of the policy{who}")
    counts["pictures, each a mark in the text"] += sum(m.pictures for m in log.messages)
    if not turns[-1].is_own:
        counts["conversations that end with a message without a reply, which is context"] += 1
    if not system and turns[0].is_own:
        counts["turns that answer nothing, shown and not learnt"] += 1
        for reply in turns[0].replies:
            reply.context = True
    try:
        made = tuple(_make_turn(turn) for turn in turns)
    except ValidationError as error:
        raise LeftOut(f"too large: {error.errors(include_url=False)[0]['msg'][:80]}") from None
    return Folded("\n\n".join(system) or None, made)


def _cast(messages: list[LogMessage], policy: str | None) -> list[LogMessage]:
    """Return the messages with the assistant's role for those of the policy, where it is named; a
    model is one of several assistants, whose replies are context."""
    if policy is None or policy == "assistant":
        return messages
    named = [policy in (m.name, m.model, m.role) and m.role != "tool" for m in messages]
    if not any(named):
        raise LeftOut(f"no message of {policy}")
    is_model = not any(policy in (m.name, m.role) for m in messages)
    out = []
    for message, own in zip(messages, named, strict=True):
        if own:
            message = replace(message, role="assistant")
        elif message.role == "assistant":
            message = replace(message, context=True) if is_model else replace(message, role="user")
        out.append(message)
    return out


def _join_groups(messages: Iterable[LogMessage]) -> list[LogMessage]:
    """Return messages in which the pieces of one reply (one `group`) are one, at the place of the
    first; a thought alone belongs to the assistant's next message."""
    out: list[LogMessage] = []
    first: dict[str, LogMessage] = {}
    thought = ""
    for piece in messages:
        message = replace(piece, calls=list(piece.calls))
        if message.role == "assistant":
            if not (message.text or message.calls or message.group) and message.reasoning:
                thought = _lines(thought, message.reasoning)
                continue
            message.reasoning, thought = _lines(thought, message.reasoning), ""
        known = first.get(message.group or "")
        if known is None:
            out.append(message)
            first |= {message.group: message} if message.group else {}
            continue
        known.text = _lines(known.text, message.text)
        known.reasoning = _lines(known.reasoning, message.reasoning)
        known.calls += message.calls
        known.finish = message.finish or known.finish
        known.usage = message.usage if any(message.usage) else known.usage
    return out


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _read_turns(messages: list[LogMessage], counts: Counter[str]) -> list[_Turn]:
    """Return the turns: the assistant's words and calls up to another's message are one, a call's
    result is its round's, and everything else is a turn of its own."""
    turns: list[_Turn] = []
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    for index, message in enumerate(messages):
        if message.role == "tool":
            if not _pair(turns, message) and message.text:
                counts["results without a call, shown as a message of the user"] += 1
                turns.append(_Turn([replace(message, role="user")]))
        elif message.role != "assistant":
            turns.append(_Turn([message]))
        elif not (message.calls or message.text):
            if index == last and not (turns and turns[-1].is_own):
                raise LeftOut("its last reply is empty")
            counts["empty replies"] += 1
        elif turns and turns[-1].takes(message):
            turns[-1].add(message)
        else:
            turns.append(_Turn([message]))
    calls = sum(len(reply.calls) for turn in turns for reply in turn.replies)
    counts["calls without a result"] += calls - sum(len(turn.results) for turn in turns)
    counts["turns that end with calls"] += sum(turn.is_open for turn in turns)
    return turns


def _pair(turns: list[_Turn], result: LogMessage) -> bool:
    """Give a result to the open call of its id, else to the first open call, in the newest turn
    that has one; return whether there is one."""
    for mark in (result.call_id, None) if result.call_id else (None,):
        for turn in reversed(turns[-LOOKED:]):
            place = turn.open_call(mark)
            if place is not None:
                turn.results[place] = result
                return True
    return False


def _make_turn(turn: _Turn) -> Turn:
    message = turn.replies[-1]
    if not turn.is_own:
        speaker, step = SPEAKERS[message.role]
        return Turn(speaker=speaker, step=step, content=message.text, finish_reason="scripted")
    finish: FinishReason = "tool_calls" if turn.is_open else "stop"
    if any(reply.context for reply in turn.replies):
        finish = "scripted"  # shown, not learnt
    elif str(message.finish).lower() in CUT:
        finish = "length"
    prompt, tokens, dollars = zip(*(reply.usage for reply in turn.replies), strict=True)
    return Turn(
        speaker="assistant",
        step="reply",
        content="" if turn.is_open else message.text,
        reasoning=None if turn.is_open else _reasoning(message),
        rounds=tuple(_make_round(turn, i) for i, one in enumerate(turn.replies) if one.calls),
        finish_reason=finish,
        prompt_tokens=next((number for number in prompt if number is not None), None),
        completion_tokens=_sum(tokens),
        cost_usd=_sum(dollars),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _reasoning(message: LogMessage) -> Reasoning | None:
    return Reasoning(text=message.reasoning) if message.reasoning else None


def _make_round(turn: _Turn, number: int) -> ToolRound:
    reply = turn.replies[number]
    calls = _calls(reply.calls)
    results = [(call, turn.results.get((number, place))) for place, call in enumerate(calls)]
    return ToolRound(
        content=reply.text,
        reasoning=_reasoning(reply),
        calls=calls,
        results=tuple(
            ToolResult(id=call.id, name=call.name, content=result.text, error=result.error)
            for call, result in results
            if result is not None
        ),
    )


def _calls(calls: list[Call]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, each under its own id, unless that is missing or there twice."""
    made: dict[str, ToolCall] = {}
    for place, call in enumerate(calls):
        mark = call.id if call.id and call.id not in made else f"call-{place}"
        made[mark] = ToolCall(id=mark, name=call.name, arguments=call.arguments)
    return tuple(made.values())


def without_copies(items: Iterable[Item], counts: Counter[str]) -> Iterator[Item]:
    """Yield the items without each conversation that a later or earlier one of the same id, or of
    the same task and trial, begins with: programs log the whole history with every request.

    Of conversations with one id that follow one another, as of one file, all are held at a time.
    """
    for key, some in groupby(items, _copy_key):
        if key is None:
            yield from some
        else:
            yield from _longest(list(some), counts)


def _copy_key(item: Item) -> object:
    if isinstance(item, LeftOut):
        return None
    return item.id or (None if item.trial is None else (item.task, item.trial))


def _longest(logs: list[Any], counts: Counter[str]) -> Iterator[LogConversation]:
    """Yield the conversations that none of the others begins with."""
    parts = [list(_prefixes(log.messages)) for log in logs]
    begun: set[bytes] = set()
    copies: set[int] = set()
    for place in sorted(range(len(logs)), key=lambda place: -len(parts[place])):
        copies |= {place} if parts[place] and parts[place][-1] in begun else set()
        begun.update(parts[place])
    counts["copies that another conversation begins with"] += len(copies)
    yield from (log for place, log in enumerate(logs) if place not in copies)


def _prefixes(messages: list[LogMessage]) -> Iterator[bytes]:
    """Yield a digest of each beginning of what was said and called, a text or a call at a time:
    whether calls stand in one message or in several is how they were logged."""
    digest = hashlib.sha256()
    for message in messages:
        said = [(message.role, message.text.strip())] if message.text.strip() else []
        for part in (
            *said,
            *((call.name, canonical_json(parsed(call.arguments))) for call in message.calls),
        ):
            digest.update(repr(part).encode("utf-8", "replace"))
            yield digest.digest()
