"""Calls of tools as open models write them into their text, by family.

Hermes and Qwen: `<tool_call>{"name", "arguments"}</tool_call>`, any number of them, after any
words. Mistral: `[TOOL_CALLS]` and a list of such objects, or `[TOOL_CALLS]name[ARGS]{arguments}`.
Llama 3: the whole reply is `{"name", "parameters"}`, after `<|python_tag|>` or nothing, several
with semicolons between them. What is nearly a call is no call: it stays in the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from typing import Any

from convbench.answers.enclosed import enclosed
from convbench.schema.tools import MOST_CALLS, ToolCall

_CALL, _CALLED = re.compile(r"<tool_call>\s*+(?=\{)"), re.compile(r"\}\s*+</tool_call>")
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_ONE = re.compile(r"([\w-]{1,64})(?:\[CALL_ID\]\w+)?\[ARGS\]")
_LLAMA = re.compile(r"\s*+(?:<\|python_tag\|>\s*+)?(?=\{)")
_NEXT = re.compile(r"\s*+;?\s*+")
_DECODER = json.JSONDecoder()


def written(text: str, names: Collection[str], key: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Return (words, calls) of a reply; only tools of these names are called. `key` names the call
    of the model, from which ids are made: nine signs, which all templates take."""
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
    """Return (name, arguments) of an object that is a call."""
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
