"""Google's wire (`POST …/models/NAME:generateContent`), as a translation from and to OpenAI's.

A request is read as what it would be there, so that replies, tools and refusals are those of every
other model; what it is refused with is in Google's words, the parameter by Google's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .dialects import OpenAI, Refusal

CONFIG = {
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
    "max_tokens": "maxOutputTokens",
    "reasoning_effort": "thinkingConfig",
    "response_format": "responseJsonSchema",
    "tool_choice": "toolConfig",
}
"""OpenAI's names and Google's."""


class Google(OpenAI):
    """`POST /models/NAME:generateContent`."""

    def incoming(self, body: Mapping[str, Any], path: str) -> dict[str, Any]:
        """See `OpenAI.incoming`."""
        config = {_camel(name): value for name, value in body.get("generationConfig", {}).items()}
        out = {name: config[theirs] for name, theirs in CONFIG.items() if theirs in config}
        if "response_format" in out:
            schema = {"schema": out["response_format"]}
            out["response_format"] = {"type": "json_schema", "json_schema": schema}
        declared = [one for tool in body.get("tools") or () for one in _declared(tool)]
        if declared:
            out["tools"] = [{"type": "function", "function": one} for one in declared]
        mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
        if mode:
            out["tool_choice"] = {"NONE": "none", "AUTO": "auto"}.get(mode, "required")
        model = path.rpartition("/")[2].partition(":")[0]
        return {**out, "model": model, "messages": list(_messages(body))}

    def outgoing(self, reply: Any) -> Any:
        """See `OpenAI.outgoing`."""
        choice, usage = reply["choices"][0], reply["usage"]
        message = choice["message"]
        parts = [{"text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = json.loads(function["arguments"])
            parts.append({"functionCall": {"name": function["name"], "args": arguments}})
        ended = "MAX_TOKENS" if choice["finish_reason"] == "length" else "STOP"
        return {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": ended, "index": 0}
            ],
            "usageMetadata": {
                "promptTokenCount": usage["prompt_tokens"],
                "candidatesTokenCount": usage["completion_tokens"],
                "totalTokenCount": usage["total_tokens"],
            },
            "modelVersion": reply["model"],
        }

    def error(self, refusal: Refusal) -> object:
        """See `Dialect.error`."""
        said = refusal.message
        if refusal.param in CONFIG:
            said = (
                f'Invalid JSON payload received. Unknown name "{CONFIG[refusal.param]}" at '
                "'generation_config': Cannot find field."
            )
        status = "INVALID_ARGUMENT" if refusal.status == 400 else "UNKNOWN"
        return {"error": {"code": refusal.status, "message": said, "status": status}}


def _declared(tool: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tool.get("functionDeclarations") or tool.get(
        "function_declarations", []
    )
    return found


def _messages(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages; calls and their results are numbered, for Google gives them no ids."""
    system = body.get("systemInstruction") or body.get("system_instruction")
    if system:
        yield {"role": "system", "content": _text(system["parts"])}
    called = answered = 0
    for content in body.get("contents") or ():
        parts = content["parts"]
        results = [p["functionResponse"] for p in _camels(parts) if "functionResponse" in p]
        for result in results:
            said = result["response"]
            text = said.get("content", said) if isinstance(said, dict) else said
            text = text if isinstance(text, str) else json.dumps(text)
            yield {"role": "tool", "tool_call_id": f"call_{answered}", "content": text}
            answered += 1
        if results:
            continue
        role = "assistant" if content.get("role") == "model" else "user"
        message: dict[str, Any] = {"role": role, "content": _text(parts)}
        calls = [p["functionCall"] for p in _camels(parts) if "functionCall" in p]
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{called + place}", "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
                }
                for place, call in enumerate(calls)
            ]  # fmt: skip
            called += len(calls)
        yield message


def _camels(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{_camel(name): value for name, value in part.items()} for part in parts]


def _camel(name: str) -> str:
    """A field's name as Google's JSON writes it; it takes both forms."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if part.get("text"))
