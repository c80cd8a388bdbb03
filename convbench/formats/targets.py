"""Other trainers' formats: how each writes a conversation, its weight, or a pair of replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Target = Literal["trl", "openai", "sharegpt", "ms-swift"]

CALLS = "tool_calls"
THOUGHT = "reasoning_content"
"""Further keys of an assistant's message, as chat templates read them."""
OWN = ("assistant", "tool_call")
"""ms-swift's roles of messages that the policy wrote."""
Chat = list[dict[str, Any]]
"""Messages {role, content, reasoning_content?} as the policy saw them, with its reasoning."""
Line = dict[str, Any]
"""One object of a JSON lines file."""


@dataclass(frozen=True)
class ExportFormat:
    """One trainer's format, as functions and properties."""

    chat: Callable[[Chat], Line]
    """Returns the line of a conversation."""
    weighted: Callable[[Chat, float], Line] | None = None
    """Returns the line of a conversation with a weight above 0; None if it cannot hold weights."""
    pair: Callable[[Chat, Chat, Chat], Line] | None = None
    """Returns the line of a prompt, the better reply and the worse one; None if it cannot hold
    pairs."""
    pair_tools: Callable[[Line, Any], None] = lambda line, tools: line.update(tools=tools)
    """Adds the tools to the line of a pair."""
    needs: tuple[str, ...] = ()
    """Notes on settings its trainer needs to learn only the policy's turns."""
    metadata: bool = False
    """Whether its rows may have a column `metadata`: that of imported logs, as JSON text."""
    drops_reasoning: bool = False
    """Whether it cannot hold reasoning."""
    tools: Callable[[list[dict[str, Any]]], Any] = list
    """Returns the value of a line's `tools`."""
    weighing: str = ""
    """Note on settings its trainer needs to use the weights."""
    negative: str = ""
    """Note on what its trainer would do with a weight below 0."""


def _messages_line(chat: Chat) -> Line:
    return {"messages": _object_calls(chat)}


def _bare_line(chat: Chat) -> Line:
    return {"messages": [{k: v for k, v in m.items() if k != THOUGHT} for m in chat]}


def tag_reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's text with its reasoning in <think> tags before it."""
    thought, text = str(message.get(THOUGHT) or "").strip("\n"), str(message["content"])
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def _tagged_chat(chat: Chat) -> Chat:
    """Return messages as ms-swift reads them: reasoning in tags, each call as a message of role
    `tool_call`, each result as one of role `tool_response`."""
    out: Chat = []
    for m in chat:
        if m["role"] == "tool":
            out.append({"role": "tool_response", "content": m["content"]})
            continue
        if tag_reasoning(m) or not m.get(CALLS):
            out.append({"role": m["role"], "content": tag_reasoning(m)})
        out += [{"role": "tool_call", "content": _call_text(call)} for call in m.get(CALLS, ())]
    return out


def _call_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = function["arguments"]
    return json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False)


def _object_calls(chat: Chat) -> Chat:
    """Return messages with the arguments of calls as objects, as chat templates expect them."""
    return [
        {**m, CALLS: [_object_call(call) for call in m[CALLS]]} if m.get(CALLS) else m for m in chat
    ]


def _object_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = json.loads(_call_text(call))
    return {**call, "function": function}


def _trl_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    return {
        "prompt": _object_calls(prompt),
        "chosen": _object_calls(chosen),
        "rejected": _object_calls(rejected),
    }


def _openai_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    return {
        "input": {"messages": prompt},
        "preferred_output": chosen,
        "non_preferred_output": rejected,
    }


def _swift_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> Line:
    """Return the line of a pair: two complete conversations if a reply calls tools, else the worse
    reply as text."""
    line: Line = {"messages": _tagged_chat([*prompt, *chosen])}
    if chosen[0].get(CALLS) or rejected[0].get(CALLS):
        return {**line, "rejected_messages": _tagged_chat([*prompt, *rejected])}
    return {**line, "rejected_response": rejected[0]["content"]}


def _swift_pair_tools(line: Line, tools: Any) -> None:
    line["tools"] = tools
    if "rejected_messages" in line:
        line["rejected_tools"] = tools


def _sharegpt_line(chat: Chat) -> Line:
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    names |= {"tool_call": "function_call", "tool_response": "observation"}
    return {
        "conversations": [
            {"from": names[m["role"]], "value": m["content"]} for m in _tagged_chat(chat)
        ]
    }


def _scaled_line(chat: Chat, weight: float) -> Line:
    messages = _tagged_chat(chat)
    return {"messages": [{**m, "loss_scale": weight} if m["role"] in OWN else m for m in messages]}


FORMATS: Mapping[Target, ExportFormat] = {
    # TRL's SFTTrainer and DPOTrainer, conversational datasets.
    "trl": ExportFormat(
        _messages_line,
        weighted=lambda chat, weight: {"messages": _object_calls(chat), "weight": weight},
        pair=_trl_pair,
        metadata=True,
        needs=("SFTTrainer learns every message unless SFTConfig(assistant_only_loss=True)",),
        weighing="SFTTrainer does not read `weight`: every row counts 1 there. "
        "convbench.formats.trl.WeightedSFTTrainer multiplies the loss of each row by it",
        negative="SFTTrainer would imitate them",
    ),
    # OpenAI's fine-tuning API, supervised and DPO.
    "openai": ExportFormat(
        _bare_line,
        pair=_openai_pair,
        pair_tools=lambda line, tools: line["input"].update(tools=tools),
        drops_reasoning=True,
    ),
    "sharegpt": ExportFormat(_sharegpt_line, metadata=True, tools=json.dumps),
    # ms-swift's custom datasets; `loss_scale` multiplies the loss of a message's tokens.
    "ms-swift": ExportFormat(
        lambda chat: {"messages": _tagged_chat(chat)},
        tools=json.dumps,
        weighted=_scaled_line,
        pair=_swift_pair,
        pair_tools=_swift_pair_tools,
        weighing="ms-swift reads `loss_scale` with --is_binary_loss_scale false (4.2 or newer); "
        "without it every row counts 1. The end of a turn counts 1 in either case",
        negative="its templates mask all of them but the end of the turn",
    ),
}
