"""Turn a provider's reply into a Completion, with the same reading for every provider.

    {"choices": [{"message": {"content": "A."}, "finish_reason": "MAX_TOKENS"}],
     "usage": {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 521}}
    -> Completion("A.", "length", prompt_tokens=20, completion_tokens=501)

Some providers count reasoning beside the reply's tokens; the total tells.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from convbench.answers.tags import split_segments
from convbench.errors import BrokenReply, FatalModelError, Usage
from convbench.models.prices import Price
from convbench.schema import Completion, FinishReason, Reasoning
from convbench.schema.reasoning import Via
from convbench.schema.tools import MOST_CALLS, ToolCall
from convbench.util.untrusted import safe_count, safe_dollars

_ENDINGS: dict[FinishReason | None, str] = {
    "stop": "stop endturn stopsequence eos eostoken complete completed toolcalls tooluse "
    "functioncall",
    "length": "length maxtokens modellength modelcontextwindowexceeded maxoutputtokens compaction "
    "pauseturn",
    "filter": "contentfilter contentfiltered refusal guardrailintervened sensitive errortoxic "
    "safety recitation blocklist prohibitedcontent spii language other imagesafety "
    "imageprohibitedcontent imagerecitation imageother",
    None: "error networkerror insufficientsystemresource abort aborted malformedmodeloutput "
    "malformedtooluse malformedfunctioncall malformedresponse unexpectedtoolcall",
}
_FINISH = {word: finish for finish, words in _ENDINGS.items() for word in words.split()}
"""Providers' finish reasons, in lower case without `-`, `_` and blanks → ours; None: it failed."""
_EMPTY: dict[FinishReason, str] = {
    "filter": "the provider's filter refused",
    "length": "all tokens went into reasoning, none into the reply; give a larger --max-tokens, or "
    "`headroom:` in models.yaml",
}
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class EmptyReply(BrokenReply):
    """A reply without text and tool calls, which is paid for: it is asked for once more."""


def read_reply(
    ref: str, body: Any, *, price: Price | None = None, cost: object = None, tags: bool = False
) -> Completion:
    """Return the completion in the body of a chat completion. `price` counts its dollars where
    neither `cost` nor the body says them; with `tags` a thinking block at the start is reasoning.

    Raise BrokenReply for no completion and for one that failed, EmptyReply for one without text and
    calls, FatalModelError if a filter refused or all went into reasoning. All carry the usage.
    """
    usage, thought = _usage_of(body, price, cost)
    try:
        choice = body["choices"][0]
        message, finish = choice["message"], _finish_of(choice)
        text, thoughts = _split_parts(message.get("content"))
        reasoning = _reasoning_of(message, thoughts, thought)
        calls = tuple(_read_call(*each) for each in enumerate(message.get("tool_calls") or ()))
    except (LookupError, TypeError, AttributeError, ValueError):
        if isinstance(body, dict) and "choices" in body:
            line = f"{ref}: the reply is empty or cannot be read (its prompt may be blocked)"
            raise EmptyReply(line, usage=usage) from None
        line = f"{ref}: reply is not a chat completion"
        raise BrokenReply(line, usage=usage) from None
    if finish is None or len(calls) > MOST_CALLS:
        line = f"{ref}: the reply failed ({str(choice.get('finish_reason'))[:40]})"
        raise BrokenReply(line, usage=usage)
    if not text and isinstance(message.get("refusal"), str):
        text, finish = message["refusal"], "filter"
    if tags and (reasoning is None or not reasoning.text):
        cut_out, text = split_reasoning(text, thought)
        reasoning = cut_out or reasoning
    if not (text.strip() or calls):
        if finish in _EMPTY:
            raise FatalModelError(f"{ref}: {_EMPTY[finish]}", stops_run=False, usage=usage)
        raise EmptyReply(f"{ref}: the reply is empty", usage=usage)
    counted = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
    named = str(body["model"])[:200] if body.get("model") else None
    return Completion(text, finish, *counted, named, reasoning, tool_calls=calls)


def _finish_of(choice: Mapping[str, Any]) -> FinishReason | None:
    """Return why a choice ended, in our words; None if it failed. A provider's own word, where a
    library or router left it, counts before the translated one."""
    inner = choice.get("provider_specific_fields") or {}
    own = choice.get("native_finish_reason") or inner.get("native_finish_reason")
    for word in (own, choice.get("finish_reason") or "stop"):
        plain = re.sub(r"[-_\s]", "", str(word).lower())
        if plain in _FINISH:
            return _FINISH[plain]
    return "other"


def _usage_of(body: Any, price: Price | None, cost: object) -> tuple[Usage, int | None]:
    """Return a reply's usage, each count None if it does not say, and its tokens of reasoning.

    Reply tokens include reasoning, also where the provider counts it beside them: then its total
    is larger than the sum. The dollars are `cost` or the body's own, else those of `price`.
    """
    usage = body.get("usage") if isinstance(body, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    inner = details.get("reasoning_tokens") if isinstance(details, dict) else None
    thought = safe_count(inner) or safe_count(usage.get("reasoning_tokens")) or None
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "cost_in_usd_ticks")
    prompt, reply, total, ticks = (safe_count(usage.get(name)) for name in names)
    if reply is not None:
        reply += thought if thought and thought > reply else 0
        reply = max(reply, (total or 0) - prompt if prompt is not None else 0)
    said = (cost, usage.get("cost"), None if ticks is None else ticks / 1e10)
    dollars = next((usd for value in said if (usd := safe_dollars(value)) is not None), None)
    if dollars is None and price and prompt is not None and reply is not None:
        inside = usage.get("prompt_tokens_details")  # OpenAI's, then Anthropic's and DeepSeek's
        cached = [inside.get("cached_tokens")] if isinstance(inside, dict) else []
        cached += [usage.get("cache_read_input_tokens"), usage.get("prompt_cache_hit_tokens")]
        read = max(safe_count(count) or 0 for count in cached)
        written = safe_count(usage.get("cache_creation_input_tokens")) or 0
        dollars = price.cost_of(prompt, reply, read, written)
    return Usage(prompt, reply, dollars), thought


def _split_parts(content: Any) -> tuple[str, str]:
    """Return (text, thoughts) of a message's content."""
    if content is None or isinstance(content, str):
        return content or "", ""
    text = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    thoughts = [_split_parts(part["thinking"])[0] for part in content if "thinking" in part]
    return text, "\n".join(thoughts)


def _reasoning_of(
    message: Mapping[str, Any], thoughts: str, tokens: int | None
) -> Reasoning | None:
    names, blocks = ("type", "thinking", "signature", "data"), message.get("thinking_blocks")
    with suppress(ValidationError, TypeError, AttributeError):  # of which no part can be sent back
        known = [
            {name: one[name] for name in names if one.get(name) is not None} for one in blocks or ()
        ]
        fields = {"tokens": tokens, "via": "blocks", "blocks": known}
        if known:
            text = "\n".join(one["thinking"] for one in known if "thinking" in one)
            return Reasoning.model_validate({"text": text, **fields})
    vias: tuple[Via, ...] = ("reasoning_content", "reasoning")
    for via in vias:
        if isinstance(said := message.get(via), str) and said.strip():
            return Reasoning(text=said, tokens=tokens, via=via)
    return Reasoning(text=thoughts, tokens=tokens) if thoughts.strip() or tokens else None


def split_reasoning(content: str, tokens: int | None = None) -> tuple[Reasoning | None, str]:
    """Return (reasoning, rest) of a text that begins with a thinking block, else (None, the text).
    The reasoning's `frame` holds the tags and blanks around it, to restore the text."""
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


def _read_call(index: int, item: dict[str, Any]) -> ToolCall:
    function, mark = item["function"], str(item.get("id") or f"call_{index}")[:200]
    arguments = function.get("arguments") or "{}"
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=mark, name=function["name"], arguments=arguments)


def parse_tool_calls(
    text: str, names: Collection[str], key: str
) -> tuple[str, tuple[ToolCall, ...]]:
    """Return (text around the calls, stripped; tool calls) of a reply that writes them as
    `<tool_call>{"name": …, "arguments": {…}}</tool_call>`; (the text unchanged, ()) without calls,
    with too many, or if one is invalid or names none of `names`.

    Ids have nine characters, which all templates accept, and follow from `key` and the position.
    """
    calls: list[ToolCall] = []
    for index, match in enumerate(_CALL.finditer(text)):
        try:
            value = json.loads(match[1])
            name, arguments = value["name"], value.get("arguments", {})
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            return text, ()
        if name not in names or not isinstance(arguments, dict) or index == MOST_CALLS:
            return text, ()
        mark = hashlib.sha256(f"{key}\0{index}".encode()).hexdigest()[:9]
        calls.append(ToolCall(id=mark, name=name, arguments=json.dumps(arguments)))
    return (_CALL.sub("", text).strip(), tuple(calls)) if calls else (text, ())
