"""Turn a provider's reply into a Completion, with the same checks for every provider: text,
reasoning, tool calls (also those that open models write in their text), log-probabilities.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from convbench.answers.tags import split_segments
from convbench.errors import FatalModelError, Usage
from convbench.models.failures import BrokenReply
from convbench.models.prices import field_of
from convbench.net.untrusted_json import safe_count, safe_text
from convbench.schema import Completion, FinishReason, Reasoning, RedactedBlock, ThinkingBlock
from convbench.schema.reasoning import MOST_BLOCKS, Block, Via
from convbench.schema.tools import MOST_CALLS, ToolCall
from convbench.util.extract import find_enclosed

FIELDS = ("reasoning_content", "reasoning", "thinking_blocks")
"""Fields of a reply's message that hold reasoning."""
MOST_TOKENS = 10_000_000
"""Most reasoning tokens that are believed."""
_BLOCK: TypeAdapter[ThinkingBlock | RedactedBlock] = TypeAdapter(Block)
_BLOCK_FIELDS = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}


def reasoning_of(message: Mapping[str, Any], usage: object) -> Reasoning | None:
    """Return the reasoning in a reply's message, with the token count of its usage; None if there
    is none.

    Thinking blocks come before `reasoning_content`, and that before `reasoning`. A count alone
    gives a Reasoning with empty text. Invalid reasoning is dropped: the reply is paid for, and is
    usable without it.
    """
    blocks, tokens = _thinking_blocks(message.get("thinking_blocks")), reasoning_tokens(usage)
    thinking = "\n".join(b.thinking for b in blocks if isinstance(b, ThinkingBlock))
    via: Via = "blocks"
    if not blocks:
        via, thinking = _reasoning_field(message)
    if not (thinking.strip() or blocks or tokens):
        return None
    return Reasoning(text=thinking, tokens=tokens, via=via, blocks=blocks)


def split_reasoning(content: str, tokens: int | None = None) -> tuple[Reasoning | None, str]:
    """Return (reasoning, rest) of a text that begins with a thinking block, else (None, the text).

    `tokens` is put into the reasoning. Its `frame` holds the tags and blanks around it, so that the
    text can be restored.
    """
    pieces = split_segments(content)
    if not pieces[0][0] and content[: pieces[0][2]].strip():
        return None, content  # it speaks first
    blocks = pieces if pieces[0][0] else pieces[1:]
    if not blocks:
        return None, content
    _, start, stop = blocks[0]
    words = content[start:stop].strip()
    start += content[start:stop].find(words)
    rest = content[blocks[1][1] if len(blocks) > 1 else len(content) :].lstrip()
    frame = content[:start], content[start + len(words) : len(content) - len(rest)]
    return Reasoning(text=words, tokens=tokens, via="tags", frame=frame), rest


def reasoning_tokens(usage: object) -> int | None:
    """Return the reasoning tokens in a call's usage, a dict or an object, from 1 to 10 million;
    else None."""
    details = field_of(usage, "completion_tokens_details") or field_of(
        usage, "output_tokens_details"
    )
    tokens = safe_count(field_of(details, "reasoning_tokens"))
    return tokens if tokens and tokens <= MOST_TOKENS else None


def _reasoning_field(message: Mapping[str, Any]) -> tuple[Via, str]:
    first, second = message.get("reasoning_content"), message.get("reasoning")
    if isinstance(first, str) and first.strip():
        return "reasoning_content", safe_text(first)
    if isinstance(second, str) and second.strip():
        return "reasoning", safe_text(second)
    return "reasoning_content", ""


def _thinking_blocks(value: object) -> tuple[ThinkingBlock | RedactedBlock, ...]:
    """Return all thinking blocks, or none if one is invalid: a part could not be sent back."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_BLOCKS:
        return ()
    try:
        return tuple(_BLOCK.validate_python(_clean_block(item)) for item in value)
    except (ValidationError, TypeError, KeyError):
        return ()


def _clean_block(block: Any) -> dict[str, Any]:
    """Return a block's known fields, with its texts made valid UTF-8."""
    kind = block["type"]
    fields = {name: block[name] for name in _BLOCK_FIELDS[kind] if block.get(name) is not None}
    return {
        "type": kind,
        **{
            name: safe_text(item) if isinstance(item, str) else item
            for name, item in fields.items()
        },
    }


_CALL, _CALLED = re.compile(r"<tool_call>\s*+(?=\{)"), re.compile(r"\}\s*+</tool_call>")
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_ONE = re.compile(r"([\w-]{1,64})(?:\[CALL_ID\]\w+)?\[ARGS\]")
_LLAMA = re.compile(r"\s*+(?:<\|python_tag\|>\s*+)?(?=\{)")
_NEXT = re.compile(r"\s*+;?\s*+")
_DECODER = json.JSONDecoder()


def parse_tool_calls(
    text: str, names: Collection[str], key: str
) -> tuple[str, tuple[ToolCall, ...]]:
    """Return (text around the calls, stripped; tool calls) of a reply in Hermes, Mistral or Llama
    form.

    Return (the text unchanged, ()) without calls, with too many, or if one is invalid or names none
    of `names`. Ids have nine characters, which all templates accept, and follow from `key` and the
    position.
    """
    words, objects = _read_hermes(text)
    if not objects:
        words, objects = _read_mistral(text)
    if not objects:
        words, objects = _read_llama(text)
    pairs = [
        pair for pair in map(_name_and_arguments, objects) if pair is not None and pair[0] in names
    ]
    if not pairs or len(pairs) != len(objects) or len(pairs) > MOST_CALLS:
        return text, ()
    calls = (
        ToolCall(id=_call_id(key, index), name=n, arguments=a) for index, (n, a) in enumerate(pairs)
    )
    return words.strip(), tuple(calls)


def _call_id(key: str, index: int) -> str:
    return hashlib.sha256(f"{key}\0{index}".encode()).hexdigest()[:9]


def _name_and_arguments(value: Any) -> tuple[str, str] | None:
    """Return (name, arguments as JSON) of an object that is a tool call, else None."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return (value["name"], json.dumps(arguments)) if isinstance(arguments, dict) else None


def _read_hermes(text: str) -> tuple[str, list[Any]]:
    words, objects, at = list[str](), list[Any](), 0
    for begin, end in find_enclosed(text, _CALL, _CALLED):
        words.append(text[at : begin.start()])
        at = end.end()
        try:
            objects.append(json.loads(text[begin.end() : end.start() + 1]))
        except (ValueError, RecursionError):
            objects.append(None)
    return "".join((*words, text[at:])), objects


def _read_mistral(text: str) -> tuple[str, list[Any]]:
    words, mark, rest = text.partition(_MISTRAL)
    if not mark:
        words, rest = "", text
    try:
        if mark and (match := _MISTRAL_ONE.match(rest)):
            objects = []
            for piece in text.split(_MISTRAL)[1:]:
                match = _MISTRAL_ONE.match(piece)
                arguments = json.loads(piece[match.end() :]) if match else None
                objects.append({"name": match[1], "arguments": arguments} if match else None)
            return words, objects
        value = json.loads(rest)
    except (ValueError, RecursionError):
        return text, []
    return words, value if isinstance(value, list) else []


def _read_llama(text: str) -> tuple[str, list[Any]]:
    start = _LLAMA.match(text)
    objects: list[Any] = []
    offset = start.end() if start else -1
    while 0 <= offset < len(text.rstrip()) and len(objects) <= MOST_CALLS:
        try:
            value, offset = _DECODER.raw_decode(text, offset)
        except (ValueError, RecursionError):
            return text, []
        objects.append(value)
        rest = _NEXT.match(text, offset)
        offset = rest.end() if rest else offset
    return "", objects


FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "stop",
    "tool_use": "stop",
    "function_call": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filter",
}
"""Providers' finish reasons → ours."""


def completion_of(
    ref: str,
    content: object,
    reason: object,
    *,
    usage: Usage,
    model: object,
    reasoning: Reasoning | None = None,
    tags: bool = False,
    calls: object = None,
) -> Completion:
    """Return the completion of a reply, its finish reason one of ours (`stop`, `length`, `filter`,
    `other`).

    With `tags` a thinking block at the start of the text is its reasoning, if no field holds any.
    Raise BrokenReply for malformed content or tool calls, and for a reply without text and tool
    calls. But for such a reply that ended at its length and has reported tokens, which are taken
    for reasoning, or that a filter refused, raise FatalModelError, which does not stop the run. All
    carry the usage.
    """
    finish = FINISH.get(str(reason or "stop"), "other")
    prompt, reply, cost = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
    try:
        reply_text = _content_text(content)
    except TypeError:
        line = f"{ref}: the reply's content is a {type(content).__name__}; expected text"
        raise BrokenReply(line, usage=usage) from None
    if tags and (reasoning is None or not reasoning.text):
        thinking, reply_text = split_reasoning(reply_text, reasoning.tokens if reasoning else None)
        reasoning = thinking or reasoning
    called = _read_calls(ref, calls, usage)
    if reply_text.strip() or called:
        return Completion(
            reply_text,
            finish,
            prompt,
            reply,
            cost,
            _model_name(model),
            reasoning,
            tool_calls=called,
        )
    if finish == "length" and reply:
        raise FatalModelError(
            f"{ref}: all {reply} tokens went into reasoning, none into the reply; "
            "give a larger --max-tokens, or `headroom:` in models.yaml",
            stops_run=False,
            usage=usage,
        )
    if finish == "filter":
        line = f"{ref}: the provider's filter refused"
        raise FatalModelError(line, stops_run=False, usage=usage)
    raise BrokenReply(f"{ref}: the reply is empty", usage=usage)


def _content_text(content: object) -> str:
    """Return the text of a reply's content, which is a string, a list of parts, or None.

    The text is valid UTF-8. Raises TypeError for any other content.
    """
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(safe_text(part) for part in parts if isinstance(part, str))
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError
    return safe_text(content)


def _read_calls(ref: str, calls: object, usage: Usage) -> tuple[ToolCall, ...]:
    """Return the tool calls in a reply's message, mappings or objects. Raises BrokenReply."""
    if not calls:
        return ()
    try:
        if not isinstance(calls, list) or len(calls) > MOST_CALLS:
            raise ValueError
        return tuple(_read_call(item, index) for index, item in enumerate(calls))
    except (ValidationError, ValueError, TypeError, RecursionError):
        line = f"{ref}: the reply's tool calls cannot be read"
        raise BrokenReply(line, usage=usage) from None


def _read_call(item: Any, index: int) -> ToolCall:
    function = field_of(item, "function")
    arguments = field_of(function, "arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    name = field_of(function, "name")
    if not isinstance(name, str) or not isinstance(arguments, str | None):
        raise TypeError
    mark = field_of(item, "id")
    mark = safe_text(mark)[:200] if isinstance(mark, str) and mark else f"call_{index}"
    return ToolCall(id=mark, name=safe_text(name), arguments=safe_text(arguments or "{}"))


def _model_name(model: object) -> str | None:
    """Return the provider's name of the model, at most 200 characters; None if it is not a text."""
    return safe_text(model)[:200] if isinstance(model, str) else None
