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

from convbench.answers.disguises import enclosed
from convbench.answers.tags import first_block
from convbench.errors import FatalModelError, Usage
from convbench.models.failures import BrokenReply
from convbench.net.tidy import count, text
from convbench.schema import Completion, FinishReason, Reasoning, RedactedBlock, ThinkingBlock
from convbench.schema.reasoning import MOST_BLOCKS, Block, Via
from convbench.schema.token_probs import MOST, TokenProbs, wrong
from convbench.schema.tools import MOST_CALLS, ToolCall

ID = "token_id:"
"""Prefix of vLLM's tokens if ids were requested (`return_tokens_as_token_ids`)."""


def token_probs(found: Any) -> TokenProbs | None:
    """Return the log-probabilities of a choice's `logprobs`; None if they are missing or invalid.

    `content` is a list of {token, logprob, bytes}, one for every sampled token. Invalid values
    count as missing: the reply itself is valid, and replies without log-probabilities are counted.
    """
    items = _get(found, "content")
    if not isinstance(items, list) or not 0 < len(items) <= MOST:
        return None
    try:
        values = tuple(min(0.0, float(_number(_get(item, "logprob")))) for item in items)
        names = [_get(item, "token") for item in items]
        if all(isinstance(name, str) and name.startswith(ID) for name in names):
            probs = TokenProbs(values, ids=tuple(int(name[len(ID) :]) for name in names))
        else:
            raws = [_get(item, "bytes") for item in items]
            probs = TokenProbs(values, sizes=tuple(map(_size, raws, names)))
    except (TypeError, ValueError, OverflowError):
        return None
    return None if wrong(probs) else probs


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:
        raise TypeError
    return value


def _size(raw: Any, name: Any) -> int:
    """Return the number of bytes of a token's text, from its `bytes` or its name."""
    if isinstance(raw, list):
        return len(raw)
    if not isinstance(name, str):
        raise TypeError
    return len(name.encode("utf-8", "surrogatepass"))


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


FIELDS = ("reasoning_content", "reasoning", "thinking_blocks")
"""Fields of a reply's message that hold reasoning."""
MOST_TOKENS = 10_000_000
"""Most reasoning tokens that are believed."""
_BLOCK: TypeAdapter[ThinkingBlock | RedactedBlock] = TypeAdapter(Block)
_KEPT = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}


def thought(said: Mapping[str, Any], usage: object) -> Reasoning | None:
    """Return the reasoning in a reply's message and usage; None if there is none.

    Invalid reasoning is dropped: the reply is paid for, and is usable without it.
    """
    blocks, tokens = _blocks(said.get("thinking_blocks")), reasoning_tokens(usage)
    found = "\n".join(b.thinking for b in blocks if isinstance(b, ThinkingBlock))
    via: Via = "blocks"
    if not blocks:
        via, found = _field(said)
    if not (found.strip() or blocks or tokens):
        return None
    return Reasoning(text=found, tokens=tokens, via=via, blocks=blocks)


def cut(content: str, tokens: int | None = None) -> tuple[Reasoning | None, str]:
    """Return (reasoning, reply) of a text that begins with a thinking block, else (None, text). The
    reasoning's `frame` holds the tags and blanks around it, so that the text can be restored."""
    found = first_block(content)
    if found is None:
        return None, content
    start, stop, rest = found
    frame = content[:start], content[stop:rest]
    thinks = Reasoning(text=content[start:stop], tokens=tokens, via="tags", frame=frame)
    return thinks, content[rest:]


def reasoning_tokens(usage: object) -> int | None:
    """Return the reasoning tokens of a usage, a mapping or an object; None if it has none."""
    details = _get(usage, "completion_tokens_details") or _get(usage, "output_tokens_details")
    found = count(_get(details, "reasoning_tokens"))
    return found if found and found <= MOST_TOKENS else None


def _field(said: Mapping[str, Any]) -> tuple[Via, str]:
    first, second = said.get("reasoning_content"), said.get("reasoning")
    if isinstance(first, str) and first.strip():
        return "reasoning_content", text(first)
    if isinstance(second, str) and second.strip():
        return "reasoning", text(second)
    return "reasoning_content", ""


def _blocks(value: object) -> tuple[ThinkingBlock | RedactedBlock, ...]:
    """Return all thinking blocks, or none if one is invalid: a part could not be sent back."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_BLOCKS:
        return ()
    try:
        return tuple(_BLOCK.validate_python(_plain(item)) for item in value)
    except (ValidationError, TypeError, KeyError):
        return ()


def _plain(block: Any) -> dict[str, Any]:
    """Return a block's known fields, with its texts made valid UTF-8."""
    kind = block["type"]
    found = {name: block[name] for name in _KEPT[kind] if block.get(name) is not None}
    return {
        "type": kind,
        **{name: text(item) if isinstance(item, str) else item for name, item in found.items()},
    }


_CALL, _CALLED = re.compile(r"<tool_call>\s*+(?=\{)"), re.compile(r"\}\s*+</tool_call>")
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_ONE = re.compile(r"([\w-]{1,64})(?:\[CALL_ID\]\w+)?\[ARGS\]")
_LLAMA = re.compile(r"\s*+(?:<\|python_tag\|>\s*+)?(?=\{)")
_NEXT = re.compile(r"\s*+;?\s*+")
_DECODER = json.JSONDecoder()


def written(text: str, names: Collection[str], key: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Return (words, tool calls) of a reply's text; (text, ()) unless all calls are valid and name
    one of `names`. Ids are nine characters, which all templates accept, derived from `key`."""
    words, found = _hermes(text)
    if not found:
        words, found = _mistral(text)
    if not found:
        words, found = _llama(text)
    told = [one for one in map(_told, found) if one is not None and one[0] in names]
    if not told or len(told) != len(found) or len(told) > MOST_CALLS:
        return text, ()
    calls = (ToolCall(id=_id(key, place), name=n, arguments=a) for place, (n, a) in enumerate(told))
    return words.strip(), tuple(calls)


def _id(key: str, place: int) -> str:
    return hashlib.sha256(f"{key}\0{place}".encode()).hexdigest()[:9]


def _told(value: Any) -> tuple[str, str] | None:
    """Return (name, arguments as JSON) of an object that is a tool call, else None."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return (value["name"], json.dumps(arguments)) if isinstance(arguments, dict) else None


def _hermes(text: str) -> tuple[str, list[Any]]:
    words, found, at = list[str](), list[Any](), 0
    for begin, end in enclosed(text, _CALL, _CALLED):
        words.append(text[at : begin.start()])
        at = end.end()
        try:
            found.append(json.loads(text[begin.end() : end.start() + 1]))
        except (ValueError, RecursionError):
            found.append(None)
    return "".join((*words, text[at:])), found


def _mistral(text: str) -> tuple[str, list[Any]]:
    words, mark, rest = text.partition(_MISTRAL)
    if not mark:
        words, rest = "", text
    try:
        if mark and (one := _MISTRAL_ONE.match(rest)):
            found = []
            for piece in text.split(_MISTRAL)[1:]:
                one = _MISTRAL_ONE.match(piece)
                arguments = json.loads(piece[one.end() :]) if one else None
                found.append({"name": one[1], "arguments": arguments} if one else None)
            return words, found
        value = json.loads(rest)
    except (ValueError, RecursionError):
        return text, []
    return words, value if isinstance(value, list) else []


def _llama(text: str) -> tuple[str, list[Any]]:
    start = _LLAMA.match(text)
    found: list[Any] = []
    place = start.end() if start else -1
    while 0 <= place < len(text.rstrip()) and len(found) <= MOST_CALLS:
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return text, []
        found.append(value)
        rest = _NEXT.match(text, place)
        place = rest.end() if rest else place
    return "", found


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
    probs: object = None,
) -> Completion:
    """Return the completion of a reply. With `tags` a thinking block at the start of its text is
    its reasoning, if no field holds any.

    Raises BrokenReply for an empty reply if another try may give text, FatalModelError (for this
    conversation only) if the tokens went into reasoning or a filter refused; both carry the usage.
    """
    finish = FINISH.get(str(reason or "stop"), "other")
    prompt, reply, cost = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
    try:
        said = _text(content)
    except TypeError:
        line = f"{ref}: the reply's content is a {type(content).__name__}; expected text"
        raise BrokenReply(line, usage=usage) from None
    if tags and (reasoning is None or not reasoning.text):
        found, said = cut(said, reasoning.tokens if reasoning else None)
        reasoning = found or reasoning
    called = _calls(ref, calls, usage)
    if said.strip() or called:
        return Completion(
            said,
            finish,
            prompt,
            reply,
            cost,
            _name(model),
            reasoning,
            tool_calls=called,
            token_probs=token_probs(probs),
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


def _text(content: object) -> str:
    """Return the text of a reply's content, which is a string, a list of parts, or None.

    The text is valid UTF-8. Raises TypeError for any other content.
    """
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text(part) for part in parts if isinstance(part, str))
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError
    return text(content)


def _calls(ref: str, found: object, usage: Usage) -> tuple[ToolCall, ...]:
    """Return the tool calls in a reply's message, mappings or objects. Raises BrokenReply."""
    if not found:
        return ()
    try:
        if not isinstance(found, list) or len(found) > MOST_CALLS:
            raise ValueError
        return tuple(_call(item, place) for place, item in enumerate(found))
    except (ValidationError, ValueError, TypeError, RecursionError):
        line = f"{ref}: the reply's tool calls cannot be read"
        raise BrokenReply(line, usage=usage) from None


def _call(item: Any, place: int) -> ToolCall:
    function = _get(item, "function")
    arguments = _get(function, "arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    name = _get(function, "name")
    if not isinstance(name, str) or not isinstance(arguments, str | None):
        raise TypeError
    mark = _get(item, "id")
    mark = text(mark)[:200] if isinstance(mark, str) and mark else f"call_{place}"
    return ToolCall(id=mark, name=text(name), arguments=text(arguments or "{}"))


def _name(model: object) -> str | None:
    """Return the provider's name of the model, at most 200 characters; None if it is not a text."""
    return text(model)[:200] if isinstance(model, str) else None
