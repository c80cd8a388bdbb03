"""How OpenAI, Anthropic, Bedrock, Gemini, OpenTelemetry, Vercel and LangChain write a message with
its texts, thoughts, calls, results and pictures, and the tools that were offered."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from convbench.formats import values
from convbench.formats.log import Call, LeftOut, LogMessage, Role, Usage
from convbench.formats.values import as_list, as_mapping, as_number, as_text, at, first_of, kept

NAMES: Mapping[Role, str] = {
    "user": "user human hum prompter input humanmessage",
    "assistant": "assistant gpt chatgpt bot model ai bard bing claude agent output gemini "
    "function_call tool_call tool_calls caller conclusion aimessage aimessagechunk",
    "system": "system developer systemmessage",
    "tool": "tool function observation tool_response tool_result toolresult environment ipython "
    "toolmessage",
}
ROLES = {name: role for role, names in NAMES.items() for name in names.split()}
CALL_ROLES = ("function_call", "tool_call", "tool_calls")  # of messages that are calls alone
CONTENT = ("content", "value", "parts", "text", "system_prompt")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
MASKS = ("weight", "loss", "train", "trainable", "loss_mask", "training")  # 0: not to be learnt
MARKS = ("tool_call_id", "toolCallId", "call_id", "tool_use_id", "toolUseId", "mcp_tool_use_id")
PERSONAL = ("hashed_ip", "header", "ip")  # they tell who somebody is, and are not kept
KNOWN = {*CONTENT, *THOUGHTS, *MASKS, *MARKS, *PERSONAL, "role", "from", "type", "name", "id"}
KNOWN |= {"additional_kwargs", "tool_calls", "function_call", "function_calls", "tool_call_ids"}
KNOWN |= {"refusal", "model", "finish_reason", "stop_reason", "stopReason", "tools", "functions"}
KNOWN |= {"thinking_blocks", "logprobs", "token_ids"}  # further keys of a message are metadata
SIGNS = {"type", "text", "toolName"}  # keys of a part
# types of parts, or how they end, in small letters without signs; then the keys of their words
CALLS = ("tooluse", "call")
RESULTS = ("toolresult", "toolcallresponse", "calloutput", "functionresponse")
THINKING = ("thinking", "reasoning", "redactedthinking", "think", "reasoningcontent")
TEXTS = ("text", "inputtext", "outputtext", "summarytext", "refusal", "guardcontent", "cachepoint")
WORDS = ("thinking", "reasoning", "text", "content", "summary", "reasoningText", "refusal", "value")
THINK = re.compile(r"\A<think>\n(.*?)\n</think>\n\n", re.S)  # as exports write reasoning


def as_role(name: Any) -> Role:
    """Return our role. Raise LeftOut for one that is not known: roles are never guessed."""
    role = ROLES.get(str(name).lower().replace("-", "_"))
    if role is None:
        raise LeftOut(f"role {str(name)[:40]!r}")
    return role


def as_call(raw: Any, name: str | None = None) -> Call:
    """Return a call in any dialect, nested or flat, as an object or JSON text, of the tool `name`
    if it says no other. Raise LeftOut without a name."""
    fields = as_mapping(raw)
    nested = fields.get("function")
    inner = nested if isinstance(nested, dict) else fields
    name = first_of(inner, "name", "toolName", "tool_name", "function_name") or nested or name
    if not isinstance(name, str):
        raise LeftOut("a call without the name of a tool")
    given = first_of(inner, "arguments", "args", "parameters")
    if given is None and (text := first_of(inner, "input", "action")) not in (None, ""):
        given = text if isinstance(values.parsed(text), dict) else {"input": text}
    if given is None or (isinstance(given, str) and given.strip() in ("", "null", "None")):
        given = "{}"
    try:
        json.loads(given)
    except (TypeError, ValueError, RecursionError):  # nulls are those of tables
        given = values.without_nulls(values.parsed(given))
        given = json.dumps(given, ensure_ascii=False, default=str)
    mark = first_of(fields, *MARKS, "id") or first_of(inner, *MARKS, "id")
    return Call(name, given, None if mark is None else str(mark))


def wire_tools(value: Any) -> list[dict[str, Any]]:
    """Return tools as the chat API takes them, from a list of them in any of its forms: wrapped or
    bare, as objects or as JSON text; parameters that are no schema become its properties."""
    tools = []
    for fields in map(as_mapping, as_list(value)):
        tool = as_mapping(first_of(fields, "function", "toolSpec")) or fields
        schema = as_mapping(first_of(tool, "parameters", "input_schema", "inputSchema"))
        schema = as_mapping(schema.get("json")) or schema
        if not isinstance(schema.get("properties"), dict):
            schema = {} if schema.get("type") == "object" else {"properties": schema}
        about = {"name": tool.get("name"), "description": as_text(tool.get("description"))}
        about["parameters"] = {**schema, "type": "object"}
        tools += [{"type": "function", "function": about}] if isinstance(about["name"], str) else []
    return tools


def read_content(value: Any, role: Role = "assistant") -> list[LogMessage]:
    """Return what a text, a part or a list of parts holds: a message of what was said, thought and
    called, then one for each result. Pictures, sounds, files and the like are marks in the text."""
    said, texts, thoughts, results = LogMessage(role), [], [], []
    value = value["parts"] if isinstance(value, dict) and "parts" in value else value
    for part in value if isinstance(value, list) else [value]:
        if not isinstance(part, dict):
            texts.append(as_text(part))
            continue
        name = part.get("type") or ("tool_call" if "toolName" in part else "text")
        if not SIGNS & part.keys():  # of Bedrock and Gemini the key is the type
            name, part = next(((k, v) for k, v in part.items() if isinstance(v, dict)), ("", part))
        kind = re.sub(r"[^a-z]", "", str(name).lower())
        result = first_of(part, "content", "output", "result", "response")
        is_call = kind.endswith(CALLS)
        if is_call:
            said.calls.append(as_call(part, str(name).removesuffix("_call")))
        if kind.endswith(RESULTS) or (is_call and result is not None):
            results.append(_result(part, result))
        elif kind in THINKING or part.get("thought") is True:
            thoughts.append(text_in(first_of(part, *WORDS)))
        elif kind in TEXTS or at(part, "source", "type") == "text":
            texts.append(text_in(first_of(part, *WORDS) or at(part, "source", "data")))
        elif not is_call:
            texts.append("[image]" if "image" in kind else f"[{kind}]")
            said.pictures += 1
    said.text = "\n".join(filter(None, texts))
    said.reasoning = "\n".join(filter(None, thoughts))
    return [said, *results]


def text_in(value: Any) -> str:
    """Return the text of a content."""
    return read_content(value)[0].text


def _result(fields: Mapping[str, Any], value: Any) -> LogMessage:
    mark = first_of(fields, *MARKS) or at(fields, "tool_call_ids", 0) or fields.get("id")
    failed = any(fields.get(name) for name in ("is_error", "isError", "error"))
    return result_message(value, mark, error=failed or fields.get("status") == "error")


def result_message(value: Any, mark: Any, *, error: bool = False) -> LogMessage:
    """Return a tool's result from its content: text, parts, or any other value as JSON."""
    if as_mapping(value).keys() == {"output", "metadata"}:  # Codex's envelope
        value = as_mapping(value)["output"]
    parts = [part for part in as_list(value) if isinstance(part, dict) and SIGNS & part.keys()]
    said = read_content(value if value == parts else as_text(value))[0]
    mark = None if mark is None else str(mark)
    return LogMessage("tool", said.text, call_id=mark, error=error, pictures=said.pictures)


def read_message(item: Mapping[str, Any], **own: Any) -> list[LogMessage]:
    """Return what one item of a chat says, with its calls, and the results in it; nothing for the
    definition of a tool, which some log among them. `own` are fields of a reply that its source
    says elsewhere. Raise LeftOut for an unknown role, or a call that cannot be read."""
    name = str(first_of(item, "role", "from", "type"))
    role, value = as_role(name), first_of(item, *CONTENT)
    calls = item.get("tool_calls") or at(item, "additional_kwargs", "tool_calls")
    if name.lower() in CALL_ROLES or as_text(value).startswith('[{"function"'):
        calls, value = as_list(value) or [value], None
    said, *results = read_content(value, role)
    if role == "tool":
        is_definition = isinstance(value, dict) and "function" in value
        return results or ([] if is_definition else [_result(item, value)])
    said.text = said.text or as_text(item.get("refusal"))
    if isinstance(words := item.get("function_calls"), str):  # of OLMo, not as objects
        said.text = f"{said.text}\n{words}".strip("\n")
    made = [*as_list(calls), *filter(None, [item.get("function_call")])]
    said.calls = [*map(as_call, made), *said.calls]
    said.name = item["name"] if isinstance(item.get("name"), str) else None
    said.context = any(as_number(mask) == 0 for mask in kept(item, *MASKS).values())
    said.extra = kept(item, *(key for key in item if key not in KNOWN))
    if role == "assistant":
        said.reasoning = as_text(first_of(item, *THOUGHTS)) or said.reasoning
        if (tags := THINK.match(said.text)) and not said.reasoning:
            said.reasoning, said.text = tags[1], said.text[tags.end() :]
        said.model = item["model"] if isinstance(item.get("model"), str) else None
        said.finish = first_of(item, "finish_reason", "stop_reason", "stopReason")
        said = replace(said, **own)
    only_results = results and not (said.text or said.calls or said.reasoning or said.pictures)
    return ([] if only_results else [said]) + results


def response_items(items: Iterable[Any], **own: Any) -> list[LogMessage]:
    """Return the messages of items of OpenAI's Responses, in order; items of other kinds, such as
    a search that the provider ran, are calls with what of their arguments can be read."""
    out: list[LogMessage] = []
    for item in items:
        if item.get("type", "message") == "message" or "role" in item:
            out += read_message(item, **own)
            continue
        made = [m for m in read_content(item) if m.calls or m.reasoning or m.role == "tool"]
        out += [replace(m, **own) if m.role == "assistant" else m for m in made]
    return out


def usage_of(counts: Any, cost: Any = None) -> Usage:
    """Return the usage of a reply from its counts of tokens, under any of the names in use."""
    fields = as_mapping(counts)
    asked = as_number(first_of(fields, "prompt_tokens", "input_tokens", "input", "inputTokens"))
    names = ("completion_tokens", "output_tokens", "output", "outputTokens")
    counted = (asked, as_number(first_of(fields, *names)))
    prompt, reply = (None if n is None or n < 0 else int(n) for n in counted)
    return prompt, reply, as_number(first_of(fields, "cost_usd") or cost)
