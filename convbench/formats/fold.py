"""From the logged shape to the turns of a run, once for all formats.

    user      "How warm is it?"               user      "How warm is it?"
    assistant calls weather            ->     assistant rounds: weather -> "7"
    tool      "7"                                       "It is 7 degrees."
    assistant "It is 7 degrees."

Pieces of one reply are joined; a call opens a round, and a result is paired with the open call of
its id, else with the first open one, since ids are lost and repeated; text after calls is the turn.
What does not fit is kept as it can be kept, and counted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Any

from pydantic import ValidationError

from convbench.formats.log import Item, Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import parsed
from convbench.schema import Reasoning, ToolCall, ToolResult, ToolRound, Turn, fingerprint
from convbench.schema.chat import FinishReason

CUT = ("length", "max_tokens", "max_output_tokens", "incomplete")  # why a reply ended that was cut
SPEAKERS = {"user": ("teacher", "say"), "system": ("system", "note")}  # (speaker, step) by role
LOOKED = 8  # turns in which the call of a result is looked for


def fold(
    log: LogConversation, counts: Counter[str], policy: str | None = None
) -> tuple[str, tuple[Turn, ...]]:
    """Return the system prompt and the turns of a conversation; add to `counts` what did not fit.

    `policy` is who is learnt, where several spoke: a name, a role or a model. Raise LeftOut if
    there is no word of a policy, or its last reply is empty.
    """
    if policy not in (None, "assistant"):
        _cast(log.messages, str(policy))
    messages = list(log.messages)
    system: dict[str, None] = {}
    while messages and messages[0].role == "system":
        system[messages.pop(0).text] = None
    turns = _turns(messages, counts)
    own = [turn for turn in turns if turn[0].role == "assistant"]
    if not own:
        names = sorted({m.name for m in messages if m.name and m.role == "user"})
        who = f"; who spoke: {', '.join(names[:5])}; --policy {names[0]}" if names else ""
        raise LeftOut(f"no word of the policy{who}")
    calls = [call for turn in own for reply in turn for call in reply.calls]
    counts["calls without a result"] += sum(call.result is None for call in calls)
    counts["pictures, each a mark in the text"] += sum(m.pictures for m in log.messages)
    if turns[0] is own[0] and not any(system):
        counts["turns that answer nothing, shown and not learnt"] += 1
        own[0][0].context = True
    try:
        return "\n\n".join(filter(None, system)), tuple(map(_turn, turns))
    except ValidationError as error:
        raise LeftOut(f"too large: {error.errors(include_url=False)[0]['msg'][:80]}") from None


def _cast(messages: list[LogMessage], policy: str) -> None:
    # A model is one of several assistants, whose replies are context; a name or role is one side.
    is_model = not any(policy in (m.name, m.role) for m in messages)
    own = [m.role != "tool" and policy in (m.name, m.model, m.role) for m in messages]
    if not any(own):
        raise LeftOut(f"no message of {policy}")
    for message, is_own in zip(messages, own, strict=True):
        if is_own:
            message.role = "assistant"
        elif message.role == "assistant":
            message.context = message.context or is_model
            message.role = "assistant" if is_model else "user"


def _turns(messages: list[LogMessage], counts: Counter[str]) -> list[list[LogMessage]]:
    """Return the turns: each a message of another, or the assistant's replies with calls and, if it
    said something after them, that. Results are given to their calls."""
    turns: list[list[LogMessage]] = []
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    thought = ""  # alone in its message: it belongs to the assistant's next one
    for index, message in enumerate(messages):
        before = turns[-1][-1] if turns else LogMessage("user")
        if message.role == "tool":
            if not _pair(turns, message) and message.text:
                counts["results without a call, shown as a message of the user"] += 1
                turns.append([replace(message, role="user")])
            continue
        if message.role != "assistant":
            turns.append([message])
            continue
        message.reasoning = "\n".join(filter(None, (thought, message.reasoning)))
        thought = "" if message.calls or message.text else message.reasoning
        is_open = before.calls and before.context == message.context
        if not (message.calls or message.text):
            if index == last and before.role != "assistant" and not thought:
                raise LeftOut("its last reply is empty")
            counts["empty replies"] += not thought
        elif message.group and message.group == before.group:
            _join(before, message)
        elif is_open and (message.text or message.reasoning or any(c.result for c in before.calls)):
            turns[-1].append(message)
        elif is_open:
            _join(before, message)
        else:
            turns.append([message])
    return turns


def _join(reply: LogMessage, piece: LogMessage) -> None:
    reply.text = "\n".join(filter(None, (reply.text, piece.text)))
    reply.reasoning = "\n".join(filter(None, (reply.reasoning, piece.reasoning)))
    reply.calls += piece.calls
    reply.finish = piece.finish or reply.finish
    reply.usage = piece.usage if any(piece.usage) else reply.usage


def _pair(turns: list[list[LogMessage]], result: LogMessage) -> bool:
    replies = [reply for turn in turns[-LOOKED:] for reply in turn]
    open_calls = [c for reply in reversed(replies) for c in reply.calls if c.result is None]
    of_its_id = (call for call in open_calls if result.call_id and call.id == result.call_id)
    if call := next(of_its_id, None) or next(iter(open_calls), None):
        call.result = result
    return call is not None


def _turn(replies: list[LogMessage]) -> Turn:
    message = replies[-1]
    if message.role != "assistant":
        speaker, step = SPEAKERS[message.role]
        return Turn(speaker=speaker, step=step, content=message.text, finish_reason="scripted")
    finish: FinishReason = "tool_calls" if message.calls else "stop"
    if any(reply.context for reply in replies):
        finish = "scripted"  # shown, not learnt
    elif str(message.finish).lower() in CUT:
        finish = "length"
    usage = zip(*(reply.usage for reply in replies), strict=True)
    prompt, tokens, dollars = ([n for n in some if n is not None] for some in usage)
    said = LogMessage("assistant") if message.calls else message
    return Turn(
        speaker="assistant",
        step="reply",
        content=said.text,
        reasoning=Reasoning(text=said.reasoning) if said.reasoning else None,
        rounds=tuple(_round(reply) for reply in replies if reply.calls),
        finish_reason=finish,
        prompt_tokens=next(iter(prompt), None),
        completion_tokens=sum(tokens) if tokens else None,
        cost_usd=sum(dollars) if dollars else None,
    )


def _round(reply: LogMessage) -> ToolRound:
    calls: dict[str, ToolCall] = {}
    results = []
    for place, call in enumerate(reply.calls):
        mark = call.id if call.id and call.id not in calls else f"call-{place}"
        calls[mark] = ToolCall(id=mark, name=call.name, arguments=call.arguments)
        if back := call.result:
            results.append(ToolResult(id=mark, name=call.name, content=back.text, error=back.error))
    thought = Reasoning(text=reply.reasoning) if reply.reasoning else None
    made = tuple(calls.values())
    return ToolRound(content=reply.text, reasoning=thought, calls=made, results=tuple(results))


def without_copies(items: Iterable[Item], counts: Counter[str]) -> Items:
    """Yield the items without each conversation that another of the same id, or of the same task
    and trial, begins with: programs log the whole history with every request. Those of one id that
    follow one another are held at a time."""
    for _, some in groupby(items, _copy_key):
        logs: list[Any] = list(some)
        parts = [_beginnings(log.messages) for log in logs] if len(logs) > 1 else [[]]
        begun = {digest for part in parts for digest in part[:-1]}
        for log, part in zip(logs, parts, strict=True):
            if part and part[-1] in begun:
                counts["copies that another conversation begins with"] += 1
            else:
                begun.update(part[-1:])
                yield log


def _copy_key(item: Item) -> object:
    if isinstance(item, LeftOut):
        return object()  # like no other
    return item.id or (object() if item.trial is None else (item.task, item.trial))


def _beginnings(messages: list[LogMessage]) -> list[str]:
    # a digest of each, a text or a call at a time: how these lie in messages is the program's
    parts: list[Any] = []
    for message in messages:
        parts += [(message.role, text)] if (text := message.text.strip()) else []
        parts += [(call.name, parsed(call.arguments)) for call in message.calls]
    return list(accumulate(map(repr, parts), fingerprint, initial=""))[1:]
