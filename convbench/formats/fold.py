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
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from convbench.formats.log import Call, Item, LeftOut, LogConversation, LogMessage
from convbench.schema import Reasoning, ToolCall, ToolResult, ToolRound, Turn, canonical_json
from convbench.schema.chat import FinishReason

CUT = ("length", "max_tokens", "max_output_tokens", "incomplete")
"""Why a reply ended that was cut, as it is logged, in small letters."""
SPEAKERS = {"user": ("teacher", "say"), "system": ("system", "note")}
"""(speaker, step) of a message that is not the policy's, by its role."""


@dataclass
class _Round:
    """A reply with calls, and their results by the call's place."""

    message: LogMessage
    results: dict[int, LogMessage] = field(default_factory=dict)

    def is_open_to(self, message: LogMessage) -> bool:
        """Return whether a message's calls belong to this reply: nothing came between."""
        return not (self.results or message.text or message.reasoning)

    def open_call(self, mark: str | None) -> int | None:
        """Return the place of the first call without a result, of this id if one is given."""
        for place, call in enumerate(self.message.calls):
            if place not in self.results and mark in (None, call.id):
                return place
        return None


@dataclass
class _Turn:
    """A turn that is not finished: what was said last, after its rounds."""

    message: LogMessage | None
    rounds: list[_Round] = field(default_factory=list)

    @property
    def is_own(self) -> bool:
        """Return whether the assistant said or called it."""
        return self.message is None or self.message.role == "assistant"

    @property
    def replies(self) -> list[LogMessage]:
        """Return its replies with calls, and what was said last."""
        return [one.message for one in self.rounds] + ([self.message] if self.message else [])

    def takes(self, message: LogMessage) -> bool:
        """Return whether the assistant's next message belongs to it: nothing was said yet, and
        either all of it is learnt or none."""
        masked = any(one.message.context for one in self.rounds)
        return self.message is None and (masked == message.context or not self.rounds)

    def add_calls(self, message: LogMessage) -> None:
        """Add a reply with calls, to the reply before it if they were logged apart."""
        if self.rounds and self.rounds[-1].is_open_to(message):
            self.rounds[-1].message.calls += message.calls
        else:
            self.rounds.append(_Round(message))


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
    messages = join_groups(_cast(log.messages, policy))
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
    """Return the messages with the assistant's role for those of the policy, where it is named."""
    if policy is None or policy == "assistant":
        return messages
    named = [policy in (m.name, m.model, m.role) and m.role != "tool" for m in messages]
    if not any(named):
        raise LeftOut(f"no message of {policy}")
    spoken = any(m.name == policy or m.role == policy for m in messages)
    out = []
    for message, own in zip(messages, named, strict=True):
        if own:
            message = replace(message, role="assistant")
        elif message.role == "assistant" and spoken:
            message = replace(message, role="user")
        elif message.role == "assistant":
            message = replace(message, context=True)
        out.append(message)
    return out


def join_groups(messages: Iterable[LogMessage]) -> list[LogMessage]:
    """Return messages in which the pieces of one reply (one `group`) are one, at the place of the
    first; a thought alone belongs to the assistant's next message."""
    out: list[LogMessage] = []
    first: dict[str, LogMessage] = {}
    thought: LogMessage | None = None
    for piece in messages:
        message = replace(piece, calls=list(piece.calls), blocks=list(piece.blocks))
        own = message.role == "assistant"
        if own and not (message.text or message.calls or message.group) and message.reasoning:
            thought = _joined(thought, message) if thought else message
            continue
        if own and thought is not None:
            message.reasoning = _lines(thought.reasoning, message.reasoning)
            message.blocks = thought.blocks + message.blocks
            thought = None
        known = first.get(message.group) if message.group else None
        if known is not None:
            _joined(known, message)
            continue
        if message.group:
            first[message.group] = message
        out.append(message)
    return out


def _joined(message: LogMessage, more: LogMessage) -> LogMessage:
    message.text = _lines(message.text, more.text)
    message.reasoning = _lines(message.reasoning, more.reasoning)
    message.calls += more.calls
    message.blocks += more.blocks
    message.pictures += more.pictures
    message.finish = more.finish or message.finish
    message.usage = more.usage if any(more.usage) else message.usage
    return message


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _read_turns(messages: list[LogMessage], counts: Counter[str]) -> list[_Turn]:
    """Return the turns: the assistant's words and calls up to another's message are one, a call's
    result is its round's, and everything else is a turn of its own."""
    turns: list[_Turn] = []
    own: _Turn | None = None  # the assistant's turn that its next words or calls belong to
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    for index, message in enumerate(messages):
        if message.role == "tool":
            if not _pair(turns, message) and message.text:
                counts["results without a call, shown as a message of the user"] += 1
                turns.append(_Turn(replace(message, role="user")))
                own = None
        elif message.role != "assistant":
            turns.append(_Turn(message))
            own = None
        elif message.calls or message.text:
            if own is None or not own.takes(message):
                own = _Turn(None)
                turns.append(own)
            if message.calls:
                own.add_calls(message)
            else:
                own.message = message
        else:
            if index == last and own is None:
                raise LeftOut("its last reply is empty")
            counts["empty replies"] += 1
    rounds = [one for turn in turns for one in turn.rounds]
    counts["calls without a result"] += sum(len(r.message.calls) - len(r.results) for r in rounds)
    counts["turns that end with calls"] += sum(turn.message is None for turn in turns)
    return turns


def _pair(turns: list[_Turn], result: LogMessage) -> bool:
    """Give a result to the open call of its id in the newest round that has one, else to the first
    open call; return whether there is one."""
    rounds = [one for turn in reversed(turns[-8:]) for one in reversed(turn.rounds)]
    for mark in (result.call_id, None) if result.call_id else (None,):
        for one in rounds:
            place = one.open_call(mark)
            if place is not None:
                one.results[place] = result
                return True
    return False


def _make_turn(turn: _Turn) -> Turn:
    message = turn.message
    if message is not None and message.role != "assistant":
        speaker, step = SPEAKERS[message.role]
        return Turn(speaker=speaker, step=step, content=message.text, finish_reason="scripted")
    replies = turn.replies
    finish: FinishReason = "stop" if message is not None else "tool_calls"
    if any(reply.context for reply in replies):
        finish = "scripted"  # shown, not learnt
    elif str(replies[-1].finish).lower() in CUT:
        finish = "length"
    prompt, tokens, dollars = zip(*(reply.usage for reply in replies), strict=True)
    return Turn(
        speaker="assistant",
        step="reply",
        content=message.text if message else "",
        reasoning=_reasoning(message) if message else None,
        rounds=tuple(_make_round(one) for one in turn.rounds),
        finish_reason=finish,
        prompt_tokens=prompt[0],
        completion_tokens=_sum(tokens),
        cost_usd=_sum(dollars),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _reasoning(message: LogMessage) -> Reasoning | None:
    if not (message.reasoning or message.blocks):
        return None
    if not message.blocks:
        return Reasoning(text=message.reasoning)
    return Reasoning.model_validate(
        {"text": message.reasoning, "blocks": message.blocks, "via": "blocks"}
    )


def _make_round(one: _Round) -> ToolRound:
    marks = _own_ids(one.message.calls)
    calls = zip(one.message.calls, marks, strict=True)
    return ToolRound(
        content=one.message.text,
        reasoning=_reasoning(one.message),
        calls=tuple(ToolCall(id=m, name=c.name, arguments=c.arguments) for c, m in calls),
        results=tuple(
            ToolResult(
                id=marks[place],
                name=one.message.calls[place].name,
                content=result.text,
                error=result.error,
            )
            for place, result in sorted(one.results.items())
        ),
    )


def _own_ids(calls: list[Call]) -> list[str]:
    """Return an id for each call of a reply: its own, unless that is missing or there twice."""
    marks: list[str] = []
    for place, call in enumerate(calls):
        mark = call.id
        marks.append(f"call-{place}" if mark is None or mark == "" or mark in marks else mark)
    return marks


def without_copies(items: Iterable[Item], counts: Counter[str]) -> Iterator[Item]:
    """Yield the items without each conversation that a later or earlier one of the same id, or of
    the same task and trial, begins with: programs log the whole history with every request.

    Of conversations with one id that follow one another, as of one file, all are held at a time.
    """
    held: list[LogConversation] = []
    key: object = None
    for item in items:
        own = _copy_key(item)
        if own is None or own != key:
            yield from _longest(held, counts)
            held, key = [], own
        if isinstance(item, LeftOut) or own is None:
            yield item
        else:
            held.append(item)
    yield from _longest(held, counts)


def _copy_key(item: Item) -> object:
    if isinstance(item, LeftOut):
        return None
    return item.id or (None if item.trial is None else (item.task, item.trial))


def _longest(logs: list[LogConversation], counts: Counter[str]) -> Iterator[LogConversation]:
    if len(logs) < 2:
        yield from logs
        return
    begun: set[bytes] = set()
    kept: set[int] = set()
    all_prefixes = [list(_prefixes(log.messages)) for log in logs]
    for place in sorted(range(len(logs)), key=lambda i: -len(all_prefixes[i])):
        prefixes = all_prefixes[place]
        if prefixes and prefixes[-1] in begun:
            counts["copies that another conversation begins with"] += 1
        else:
            kept.add(place)
            begun.update(prefixes)
    yield from (log for place, log in enumerate(logs) if place in kept)


def _prefixes(messages: list[LogMessage]) -> Iterator[bytes]:
    """Yield a digest of each beginning of what was said and called, a text or a call at a time:
    whether calls stand in one message or in several is how they were logged."""
    digest = hashlib.sha256()
    for message in messages:
        said = [(message.role, message.text.strip())] if message.text.strip() else []
        for part in (*said, *((call.name, _canonical(call.arguments)) for call in message.calls)):
            digest.update(repr(part).encode("utf-8", "replace"))
            yield digest.digest()


def _canonical(arguments: str) -> str:
    try:
        return canonical_json(json.loads(arguments))
    except ValueError:
        return arguments
