"""Build the messages that a speaker sees of a conversation. Build, judge and train all use these
functions.

A speaker's own turns are `assistant` messages, all others' are `user` messages. A step's
instruction is appended to the message it answers and stays there, so that the messages before one
turn are always a prefix of the messages before the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from convbench.errors import DataError
from convbench.schema import (
    Content,
    Conversation,
    Message,
    ProtocolSpec,
    Reasoning,
    Sent,
    Speaker,
    TextPart,
    ToolCall,
    ToolRound,
    Turn,
    text_of,
)
from convbench.schema.reasoning import Replay

SEPARATOR = "\n\n"
"""Between a message and the instruction appended to it."""
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Names of reasoning in chat templates and in logs, of which the first one present counts."""
SENTINEL = "convbenchsentinel"
"""A text that occurs in no chat template."""


def _speaker_of(protocol: ProtocolSpec, name: str) -> Speaker:
    if name not in protocol.speakers:
        known = ", ".join(protocol.speakers)
        raise DataError(
            f"found a turn of speaker {name!r:.80}; protocol {protocol.name} has {known}"
        )
    return protocol.speakers[name]


def heard_content(protocol: ProtocolSpec, turn: Turn) -> Content:
    """Return what other speakers see of a turn: text without private thought, then cut to the
    speaker's limit of characters.

    Private thought is everything up to the marker `private_before`. A scripted turn, and one of
    several parts, is returned whole. Raise DataError for a speaker that the protocol lacks.
    """
    speaker, content = _speaker_of(protocol, turn.speaker), turn.content
    if not isinstance(content, str) or turn.finish_reason == "scripted":
        return content
    marker = speaker.private_before
    if marker and marker in content:
        content = content.split(marker, 1)[1].strip()
    return content[: speaker.cut] if speaker.cut else content


def heard_text(protocol: ProtocolSpec, turn: Turn) -> str:
    """Return the text of what other speakers see of a turn (`heard_content`), an image as
    `[image]`."""
    return text_of(heard_content(protocol, turn))


def can_hear(protocol: ProtocolSpec, listener: str, speaker: str) -> bool:
    """Return whether `listener` sees the turns of `speaker`: its `heard_by` is empty or names the
    listener. Raise DataError for a speaker that the protocol lacks."""
    only = _speaker_of(protocol, speaker).heard_by
    return not only or listener in only


def messages_before(
    protocol: ProtocolSpec,
    conversation: Conversation,
    speaker: str,
    upto: int | None = None,
    *,
    replay: Replay | None = None,
) -> list[Message]:
    """Return the messages that `speaker` saw before turn `upto` (an index among all turns), or
    after all turns if it is None; its system prompt comes first.

    If turn `upto` is the speaker's own, the last message has role `user` and includes that turn's
    instruction, because the speaker answered it. The speaker's earlier reasoning is included as it
    was sent back at the time, or as `replay` says.
    """
    turns = conversation.turns if upto is None else conversation.turns[:upto]
    pending = None
    if upto is not None and upto < len(conversation.turns):
        pending = conversation.turns[upto]
    return next_messages(
        protocol,
        conversation.systems.get(speaker),
        turns,
        speaker,
        pending.instruction if pending and pending.speaker == speaker else None,
        replay or conversation.sent.get(speaker, Sent()).replay,
    )


def next_messages(
    protocol: ProtocolSpec,
    system: str | None,
    turns: tuple[Turn, ...],
    speaker: str,
    instruction: str | None,
    replay: Replay = "never",
) -> list[Message]:
    """Return the messages for `speaker` to answer next, given the turns so far, its system prompt
    first; the input is not changed.

    Its own turns have role `assistant`, others' `user` (or their speaker's `role`); adjacent
    messages of one role are joined, and with history `last` only the last message is kept.
    `instruction` is that of the turn about to be spoken. `replay` says which of its own reasoning
    the speaker is sent again. No speaker sees another's reasoning, or turns that it does not hear.
    """
    out: list[Message] = [{"role": "system", "content": system}] if system else []
    start = len(out)
    own = [turn for turn in turns if turn.speaker == speaker]
    for turn in turns:
        if turn.speaker == speaker:
            _append_instruction(
                out, start, turn.instruction, _speaker_of(protocol, speaker).opening
            )
            out += tool_messages(turn.rounds, replay, latest=turn is own[-1])
            if turn.calls_alone:
                continue
            _append_message(out, start, "assistant", turn.content)
            if turn.reasoning is not None:
                _add_reasoning(
                    out[-1], _replayed_reasoning(turn.reasoning, replay, turn is own[-1])
                )
        elif can_hear(protocol, speaker, turn.speaker):
            _append_message(
                out, start, _speaker_of(protocol, turn.speaker).role, heard_content(protocol, turn)
            )
    if instruction is not None or len(out) == start:
        _append_instruction(out, start, instruction, _speaker_of(protocol, speaker).opening)
    if _speaker_of(protocol, speaker).history == "last" and len(out) > start + 1:
        del out[start:-1]
    return frame_llama_2(out) if protocol.framing == "llama-2" else out


def tool_messages(
    rounds: Sequence[ToolRound], replay: Replay = "never", *, latest: bool = True
) -> list[Message]:
    """Return the messages of a turn's tool rounds: for each, the reply that calls, then one message
    of role `tool` for each result.

    `replay` says which of the reasoning before the calls is sent back, `latest` whether
    the turn is the speaker's latest.
    """
    out: list[Message] = []
    for tool_round in rounds:
        call_message: Message = {
            "role": "assistant",
            "content": tool_round.content,
            "tool_calls": tool_round.calls,
        }
        if tool_round.reasoning is not None:
            _add_reasoning(call_message, _replayed_reasoning(tool_round.reasoning, replay, latest))
        out.append(call_message)
        for result in tool_round.results:
            out.append(
                {
                    "role": "tool",
                    "content": result.content,
                    "tool_call_id": result.id,
                    "name": result.name,
                }
            )
    return out


def frame_llama_2(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the marks of Llama 2's chat format written into the text of user
    messages.

    The system prompt goes into the first user message. Later system messages and replies are
    unchanged. A prefix of a conversation gets the same marks, so that longer contexts still extend
    shorter ones.
    """
    system, rest = "", list(messages)
    if rest and rest[0]["role"] == "system":
        system = f"<<SYS>>\n{text_of(rest.pop(0)['content'])}\n<</SYS>>\n\n"
    out: list[Message] = []
    for message in rest:
        if message["role"] == "user":
            before, system = f"[INST] {system}", ""
            out.append({"role": "user", "content": _between_marks(before, message["content"])})
        else:
            out.append(message)
    return out


def _between_marks(before: str, content: Content) -> Content:
    if isinstance(content, str):
        return f"{before}{content} [/INST]"
    return (TextPart(text=before), *content, TextPart(text=" [/INST]"))


def _append_instruction(
    out: list[Message], start: int, instruction: str | None, opening: str | None
) -> None:
    """Make the last message a user message that ends with the instruction."""
    if len(out) == start and (opening or instruction):
        out.append(
            {"role": "user", "content": SEPARATOR.join(filter(None, [opening, instruction]))}
        )
    elif instruction is not None:
        _append_message(out, start, "user", instruction)


def _append_message(out: list[Message], start: int, role: str, content: Content) -> None:
    """Append a message, or join it to the last one if that has the same role."""
    if len(out) > start and out[-1]["role"] == role:
        out[-1] = {**out[-1], "content": _join_content(out[-1]["content"], content)}
    else:
        out.append({"role": role, "content": content})  # type: ignore[typeddict-item]


def _replayed_reasoning(reasoning: Reasoning, replay: Replay, latest: bool) -> Reasoning | None:
    """Return the part of a turn's reasoning that is sent back, or None if nothing is."""
    if replay == "never" or (replay == "last" and not latest):
        return None
    if replay == "signed":
        return reasoning if reasoning.blocks else None
    return reasoning.model_copy(update={"blocks": ()}) if reasoning.text else None


def _add_reasoning(message: Message, reasoning: Reasoning | None) -> None:
    """Add reasoning to an assistant message, joined to the reasoning that it already has."""
    before = message.get("reasoning")
    if reasoning is not None and before is not None:
        text = SEPARATOR.join(filter(None, [before.raw, reasoning.raw]))
        reasoning = Reasoning(
            text=text, via=reasoning.via, blocks=(*before.blocks, *reasoning.blocks)
        )
    if reasoning is not None:
        message["reasoning"] = reasoning


def original_text(reasoning: Reasoning, content: str) -> str:
    """Return a reply as the model wrote it: with the tagged reasoning that was cut out of it;
    `content` alone if the reasoning came in another field."""
    return reasoning.raw + content if reasoning.via == "tags" else content


def shows_text(render: Callable[[list[Any]], str]) -> bool:
    """Return whether a chat template shows a message whose content is a text; False if it raises an
    error.

    Templates of some vision models take a list of parts only. `render` returns the text of messages
    under the template.
    """
    return _shows_sentinel(render, [{"role": "user", "content": SENTINEL}])


def for_template(messages: Sequence[Message], *, parts: bool = False) -> list[dict[str, Any]]:
    """Return text messages in the form that chat templates take: role, content, tool_calls,
    tool_call_id and name.

    Reasoning is under every key in use, or in the text that it was cut out of; arguments of calls
    are objects. With `parts` each content is a list of one part. Build and training both use this
    function.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        reasoning = message.get("reasoning")
        template_message: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if reasoning is not None and reasoning.via == "tags":
            template_message["content"] = original_text(reasoning, text_of(message["content"]))
        elif reasoning is not None and reasoning.text:
            template_message |= dict.fromkeys(THOUGHT_KEYS, reasoning.text)
        if message.get("tool_calls"):
            template_message["tool_calls"] = [
                _call_for_template(call) for call in message["tool_calls"]
            ]
        if "tool_call_id" in message:
            template_message |= {
                "tool_call_id": message["tool_call_id"],
                "name": message.get("name", ""),
            }
        if parts:
            template_message["content"] = [{"type": "text", "text": template_message["content"]}]
        out.append(template_message)
    return out


def wire_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as the chat API writes them, as JSON data: content as text, an image as
    `[image]`; `reasoning_content`, `tool_calls`, `tool_call_id` and `name` where one has them."""
    out = []
    for message in messages:
        fields: dict[str, Any] = {"role": message["role"], "content": text_of(message["content"])}
        if "reasoning" in message:
            fields["reasoning_content"] = message["reasoning"].text
        if message.get("tool_calls"):
            fields["tool_calls"] = [call.wire for call in message["tool_calls"]]
        if "tool_call_id" in message:
            fields |= {"tool_call_id": message["tool_call_id"], "name": message.get("name", "")}
        out.append(fields)
    return out


def _call_for_template(call: ToolCall) -> dict[str, Any]:
    """Return a tool call with its arguments as an object, which templates of all model families
    take."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {"unreadable": call.arguments}
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _join_content(first: Content, second: Content) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return first + SEPARATOR + second
    left = (TextPart(text=first),) if isinstance(first, str) else first
    right = (TextPart(text=second),) if isinstance(second, str) else second
    return (*left, *right)


def _shows_sentinel(render: Callable[[list[Message]], str], chat: list[Message]) -> bool:
    try:
        return SENTINEL in render(chat)
    except Exception:  # noqa: BLE001 - a template raises whatever it likes
        return False


def shows_system(render: Callable[[list[Message]], str]) -> bool:
    """Return whether a chat template shows a system message; some refuse it with an error, some
    drop it, and both give False.

    `render` returns the text of messages under the template.
    """
    chat: list[Message] = [
        {"role": "system", "content": SENTINEL},
        {"role": "user", "content": "hello"},
    ]
    return _shows_sentinel(render, chat)


def without_system(messages: Sequence[Message]) -> list[Message]:
    """Return a list of the messages for a chat template that shows no system message.

    A system prompt at the start is put before the first user message, or becomes a user message if
    a reply comes first. Build and training both use this function, so that a policy is trained on
    the messages it was sent.
    """
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, *rest = messages
    content = system["content"]
    if rest and rest[0]["role"] == "user":
        content = _join_content(content, rest.pop(0)["content"])
    return [{"role": "user", "content": content}, *rest]


def shows_late_system(render: Callable[[list[Message]], str]) -> bool:
    """Return whether a chat template shows a system message that comes after others; False if it
    raises an error.

    `render` returns the text of messages under the template.
    """
    chat: list[Message] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello"},
        {"role": "system", "content": SENTINEL},
        {"role": "user", "content": "hello"},
    ]
    return _shows_sentinel(render, chat)


def without_late_system(messages: Sequence[Message]) -> list[Message]:
    """Return the messages for a chat template that shows no system message after others: such
    messages become the user's and are joined to adjacent user messages."""
    out: list[Message] = []
    for message in messages:
        late = message["role"] == "system" and bool(out)
        if late or (out and out[-1]["role"] == message["role"] == "user"):
            _append_message(out, 0, "user", message["content"])
        else:
            out.append(message)
    return out


def sent_temperature(protocol: ProtocolSpec, conversation: Conversation) -> float | None:
    """Return the temperature of the conversation, or None if the policy's model takes none, so that
    none was sent."""
    sent = conversation.sent.get(protocol.policy)
    missing = sent is not None and "temperature" in sent.left_out
    return None if missing else conversation.temperature


def policy_turns(protocol: ProtocolSpec, conversation: Conversation) -> list[int]:
    """Return the indices of the policy's turns among all turns, in order."""
    policy = protocol.policy  # the property searches the speakers, so it is read once
    return [i for i, turn in enumerate(conversation.turns) if turn.speaker == policy]


def own_turns(protocol: ProtocolSpec, conversation: Conversation) -> list[int]:
    """Return the indices of the turns that the policy's model wrote, without scripted ones."""
    turns = conversation.turns
    return [i for i in policy_turns(protocol, conversation) if turns[i].finish_reason != "scripted"]


def asking_turns(protocol: ProtocolSpec, conversation: Conversation) -> list[int]:
    """Return the indices of the policy's turns that another speaker's model answers.

    These are the questions of a dialogue. The turn with the marker, which a scripted step follows,
    asks nobody, and neither does the answer, which nothing follows.
    """
    scripted = {step.id for step in protocol.all_steps() if step.say is not None}
    policy = protocol.policy
    return [
        i
        for i, (turn, after) in enumerate(pairwise(conversation.turns))
        if turn.speaker == policy and after.speaker != policy and after.step not in scripted
    ]


def final_text(protocol: ProtocolSpec, conversation: Conversation) -> str | None:
    """Return the complete text of the last policy turn, private thought included, or None if the
    policy never spoke."""
    indices = policy_turns(protocol, conversation)
    return text_of(conversation.turns[indices[-1]].content) if indices else None


def transcript(conversation: Conversation, *, reasoning: bool = False) -> str:
    """Return the conversation as a judge reads it: `NAME: TEXT` for each turn, separated by empty
    lines, with tagged thinking and tool rounds, and without system prompts and instructions.

    Names are the speakers', with a capital. With `reasoning` it includes what was thought in a
    separate channel.
    """
    lines: list[str] = []
    for turn in conversation.turns:
        name = turn.speaker.capitalize()
        if reasoning and turn.reasoning is not None and turn.reasoning.text.strip():
            lines.append(f"{name} (reasoning, not said): {turn.reasoning.text.strip()}")
        for tool_round in turn.rounds:
            lines += [f"{who}: {what}" for who, what in round_lines(name, tool_round)]
        if not turn.calls_alone:
            lines.append(f"{name}: {text_of(turn.content)}")
    return SEPARATOR.join(lines)


def round_lines(name: str, tool_round: ToolRound) -> list[tuple[str, str]]:
    """Return (speaker, text) lines of a tool round, as a judge reads it.

    First what was said, if anything, then each call as (`NAME calls TOOL`, arguments), then each
    result as (`Result of TOOL`, text).
    """
    lines = [(name, tool_round.content)] if tool_round.content.strip() else []
    lines += [(f"{name} calls {call.name}", call.arguments) for call in tool_round.calls]
    return lines + [(f"Result of {result.name}", result.content) for result in tool_round.results]
