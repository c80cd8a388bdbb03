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
from typing import Any

from pydantic import TypeAdapter, ValidationError

from convbench.answers.tags import split_segments
from convbench.errors import BrokenReply, FatalModelError, Usage
from convbench.models.prices import Price, cache_counts
from convbench.schema import Completion, FinishReason, Reasoning, ThinkingBlock
from convbench.schema.reasoning import MOST_BLOCKS, Block, Via
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
_BLOCK: TypeAdapter[Any] = TypeAdapter(Block)
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class EmptyReply(BrokenReply):
    """A reply without text and tool calls, which is paid for: it is asked for once more."""


def read_reply(
    ref: str,
    body: Any,
    *,
    price: Price | None = None,
    cost: object = None,
    tags: bool = False,
) -> Completion:
    """Return the completion in the body of a chat completion.

    `price` counts its dollars where neither `cost` nor the body says them. With `tags` a thinking
    block at the start of its text is its reasoning. Raise BrokenReply for what is no completion and
    for one that failed, EmptyReply for one without text and calls; FatalModelError, which does not
    stop the run, if a filter refused or all tokens went into reasoning. All carry the usage.
    """
    counts = body.get("usage") if isinstance(body, dict) else None
    counts = counts if isinstance(counts, dict) else {}
    usage, thought = _usage_of(counts, price, cost), _reasoning_tokens(counts)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        text, thoughts = _split_parts(message.get("content"))
        calls = _read_calls(message.get("tool_calls") or [])
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        if isinstance(body, dict) and "choices" in body:
            line = f"{ref}: the reply is empty or cannot be read (its prompt may be blocked)"
            raise EmptyReply(line, usage=usage) from None
        line = f"{ref}: reply is not a chat completion"
        raise BrokenReply(line, usage=usage) from None
    finish, word = _finish_of(choice)
    if finish is None:
        raise BrokenReply(f"{ref}: the reply failed ({word})", usage=usage)
    if not text and isinstance(message.get("refusal"), str):
        text, finish = message["refusal"], "filter"
    reasoning = _reasoning_of(message, thoughts, thought)
    if tags and (reasoning is None or not reasoning.text):
        cut_out, text = split_reasoning(text, thought)
        reasoning = cut_out or reasoning
    if not (text.strip() or calls):
        why = {
            "filter": "the provider's filter refused",
            "length": "all tokens went into reasoning, none into the reply; give a larger "
            "--max-tokens, or `headroom:` in models.yaml",
        }
        if finish in why:
            raise FatalModelError(f"{ref}: {why[finish]}", stops_run=False, usage=usage)
        raise EmptyReply(f"{ref}: the reply is empty", usage=usage)
    return Completion(
        text,
        finish,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cost_usd,
        str(body["model"])[:200] if body.get("model") else None,
        reasoning,
        tool_calls=calls,
    )


def _finish_of(choice: Mapping[str, Any]) -> tuple[FinishReason | None, str]:
    """Return why a choice ended, in our words (`other` if it is not known; None if it failed), and
    in the provider's, which counts before the translation of a library or router."""
    inner = choice.get("provider_specific_fields")
    own = choice.get("native_finish_reason") or (
        inner.get("native_finish_reason") if isinstance(inner, dict) else None
    )
    for word in (own, choice.get("finish_reason") or "stop"):
        plain = re.sub(r"[-_\s]", "", str(word).lower())
        if plain in _FINISH:
            return _FINISH[plain], plain
    return "other", ""


def _usage_of(usage: Mapping[str, Any], price: Price | None, cost: object) -> Usage:
    """Return the tokens and dollars in a reply's usage; each None if it does not say.

    Reply tokens include reasoning, also where the provider counts it beside them: then its total
    is larger than the sum. The dollars are `cost` or the body's own, else those of `price`.
    """
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "cost_in_usd_ticks")
    prompt, reply, total, ticks = (safe_count(usage.get(name)) for name in names)
    if reply is not None:
        thought = _reasoning_tokens(usage) or 0
        reply += thought if thought > reply else 0
        reply = max(reply, (total or 0) - prompt if prompt is not None else 0)
    said = (cost, usage.get("cost"), None if ticks is None else ticks / 1e10)
    dollars = next((usd for value in said if (usd := safe_dollars(value)) is not None), None)
    if dollars is None and price and prompt is not None and reply is not None:
        dollars = price.cost_of(prompt, reply, *cache_counts(usage))
    return Usage(prompt, reply, dollars)


def _reasoning_tokens(usage: Mapping[str, Any]) -> int | None:
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    tokens = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return safe_count(tokens) or safe_count(usage.get("reasoning_tokens")) or None


def _split_parts(content: Any) -> tuple[str, str]:
    """Return (text, thoughts) of a message's content: a text, a list of parts, or None.

    Raises TypeError or AttributeError for any other content.
    """
    if content is None or isinstance(content, str):
        return content or "", ""
    text = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    thoughts = [_split_parts(part["thinking"])[0] for part in content if "thinking" in part]
    return text, "\n".join(thoughts)


def _reasoning_of(
    message: Mapping[str, Any], thoughts: str, tokens: int | None
) -> Reasoning | None:
    """Return the reasoning in a reply's message; None if there is none.

    Thinking blocks come before `reasoning_content`, `reasoning` and `thoughts`, those among the
    content's parts. A count of tokens alone gives a Reasoning with empty text.
    """
    names = ("type", "thinking", "signature", "data")
    try:
        known = [
            {name: block[name] for name in names if block.get(name) is not None}
            for block in message.get("thinking_blocks") or ()
        ]
        blocks = tuple(map(_BLOCK.validate_python, known[:MOST_BLOCKS]))
    except (ValidationError, TypeError, AttributeError):
        blocks = ()  # the reply is usable without them, and a part could not be sent back
    if blocks:
        text = "\n".join(b.thinking for b in blocks if isinstance(b, ThinkingBlock))
        return Reasoning(text=text, tokens=tokens, via="blocks", blocks=blocks)
    vias: tuple[Via, ...] = ("reasoning_content", "reasoning")
    for via in vias:
        if isinstance(said := message.get(via), str) and said.strip():
            return Reasoning(text=said, tokens=tokens, via=via)
    return Reasoning(text=thoughts, tokens=tokens) if thoughts.strip() or tokens else None


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


def _read_calls(items: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    """Return the tool calls in a reply's message. Raises ValueError, TypeError or KeyError, also
    for too many."""
    calls = []
    for index, item in enumerate(items):
        function, mark = item["function"], str(item.get("id") or f"call_{index}")[:200]
        arguments = function.get("arguments") or "{}"
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(ToolCall(id=mark, name=function["name"], arguments=arguments))
    if len(calls) > MOST_CALLS:
        raise ValueError
    return tuple(calls)


def parse_tool_calls(
    text: str, names: Collection[str], key: str
) -> tuple[str, tuple[ToolCall, ...]]:
    """Return (text around the calls, stripped; tool calls) of a reply that writes them as
    `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

    Return (the text unchanged, ()) without calls, with too many, or if one is invalid or names none
    of `names`. Ids have nine characters, which all templates accept, and follow from `key` and the
    position.
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
