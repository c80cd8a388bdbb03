"""Spans of OpenTelemetry's GenAI conventions and of OpenInference (Phoenix), flattened or as OTLP.

Each call of a model logs its whole history, so an agent's last call holds its conversation, and
what another begins with is a copy; a sub-agent's calls have a history of their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.chats import read_chat, read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Item, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_text, first_of

whole_file = True
KINDS = ("llm", "agent", "chain", "tool")
OPERATIONS = {
    **dict.fromkeys(("chat", "generate_content", "text_completion"), "llm"),
    "invoke_agent": "agent",
    "execute_tool": "tool",
}
"""Kind of a span by what GenAI calls its operation."""
INDEXED = re.compile(
    r"(?:llm|gen_ai)\.(?:(input_messages|output_messages|prompt|completion))\.(\d+)\.(.+)"
)
"""Attributes that write a list of messages by index."""
CALL = re.compile(r"tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(name|arguments|id)")
PART = re.compile(r"contents?\.\d+(?:\.message_content\.(text|image.*))?")


def recognises(first: object) -> bool:
    """A span, a list or a mapping of lists of them, or OTLP."""
    if isinstance(first, list):
        return bool(first) and recognises(first[0])
    if not isinstance(first, dict):
        return False
    if "resourceSpans" in first or {"attributes", "name"} <= first.keys():
        marks = {"trace_id", "traceId", "context", "span_id", "resourceSpans"}
        return bool(first.keys() & marks)
    return bool(first) and all(isinstance(v, list) and v and recognises(v) for v in first.values())


def read(values: Any, where: str) -> Iterator[Item]:
    """Yield the calls of each trace with their histories; of a trace without one that has its
    content, what its agent was asked and said."""
    traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in _spans(values):
        trace = first_of(span, "trace_id", "traceId")
        trace = trace or as_mapping(span.get("context")).get("trace_id")
        traces[as_text(trace)].append(span)
    for name, spans in traces.items():
        spans.sort(key=lambda span: as_text(_start(span)))
        logs: list[LogConversation] = []
        for kind in ("llm", "agent", "chain"):
            found = (_read(span, name) for span in spans if not logs and _kind(span) == kind)
            logs += [log for log in list(found) if log.has_reply]
        if not logs:
            yield LeftOut("a trace without the content of a call")
        yield from logs


def _start(span: Mapping[str, Any]) -> Any:
    return first_of(span, "start_time", "startTimeUnixNano")


def _spans(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _spans(item)
    elif isinstance(value, dict) and "attributes" in value and "resource" not in value:
        yield value
    elif isinstance(value, dict):
        names = ("resourceSpans", "scopeSpans", "spans")
        inner = [value[n] for n in names if n in value] or list(value.values())
        yield from _spans([item for item in inner if isinstance(item, list)])


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as an object: OTLP lists them with their types, some programs nest them."""
    raw = holder.get("attributes")
    if not isinstance(raw, list):
        return dict(_flat(as_mapping(raw), ""))
    return {as_text(item.get("key")): _untyped(item.get("value")) for item in raw}


def _flat(fields: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and not name.endswith(("messages", "value")):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _untyped(value: Any) -> Any:
    inner: Any = next(iter(value.values()), None) if isinstance(value, dict) else value
    is_list = isinstance(inner, dict) and "values" in inner
    return [_untyped(item) for item in inner["values"]] if is_list else inner


def _kind(span: Mapping[str, Any]) -> str:
    fields = _attributes(span)
    kind = as_text(fields.get("openinference.span.kind") or span.get("span_kind")).lower()
    other = "llm" if "gcp.vertex.agent.llm_request" in fields else "chain"
    operation = as_text(fields.get("gen_ai.operation.name"))
    return kind if kind in KINDS else OPERATIONS.get(operation, other)


def _events(span: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [as_mapping(event) for event in as_list(first_of(span, "span_events", "events"))]


def _read(span: Mapping[str, Any], trace: str) -> LogConversation:
    fields = _attributes(span)
    for event in _events(span):
        fields = _attributes(event) | fields
    asked, said = _messages(fields) or _event_messages(span)
    counts = {
        "input": first_of(fields, "gen_ai.usage.input_tokens", "llm.token_count.prompt"),
        "output": first_of(fields, "gen_ai.usage.output_tokens", "llm.token_count.completion"),
    }
    names = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    model = first_of(fields, *names)
    messages = read_exchange(asked, said, model=model, usage=usage_of(counts))
    system = read_chat(fields.get("gen_ai.system_instructions"), "system")
    if system and not any(message.role == "system" for message in messages):
        messages = [LogMessage("system", "\n".join(m.text for m in system)), *messages]
    schemas = sorted(k for k in fields if re.fullmatch(r"llm\.tools\.\d+\.tool\.json_schema", k))
    return LogConversation(
        messages,
        id=trace,
        tools=fields.get("gen_ai.tool.definitions") or [fields[name] for name in schemas],
        temperature=fields.get("gen_ai.request.temperature"),
        time=_start(span),
        metadata={
            "span": span.get("name"),
            "session": first_of(fields, "session.id", "gen_ai.conversation.id"),
        },
    )


def _event_messages(span: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what a call was given and what it gave, of events: `gen_ai.user.message` and the like
    before `gen_ai.choice`."""
    asked: list[Any] = []
    said = None
    for event in _events(span):
        name = as_text(first_of(event, "name", "event_name"))
        body = as_mapping(event.get("body")) or _attributes(event)
        match = re.fullmatch(r"gen_ai\.(system|user|assistant|tool)\.message", name)
        if match:
            asked.append({"role": match[1], **body})
        elif name == "gen_ai.choice":
            said = {"role": "assistant", **(as_mapping(body.get("message")) or body)}
    return asked, said


def _messages(fields: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Return what a call was given and what it gave, by the first convention that has it."""
    lists: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for name, value in fields.items():
        match = INDEXED.fullmatch(name)
        if match:
            _set(lists[match[1]].setdefault(int(match[2]), {}), match[3], value)
    given = fields.get("input.value")
    indexed = {kind: [items[i] for i in sorted(items)] for kind, items in lists.items()}
    pairs = (
        (fields.get("gen_ai.input.messages"), fields.get("gen_ai.output.messages")),
        (indexed.get("input_messages") or given, indexed.get("output_messages")),
        (indexed.get("prompt"), indexed.get("completion")),
        (fields.get("gcp.vertex.agent.llm_request"), fields.get("gcp.vertex.agent.llm_response")),
        (given, fields.get("output.value")),
    )
    return next((pair for pair in pairs if pair[1] not in (None, "", [])), None)


def _set(item: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of a message by its flattened name."""
    path = path.removeprefix("message.")
    if match := CALL.fullmatch(path):
        calls = item.setdefault("tool_calls", [])
        while len(calls) <= int(match[1]):
            calls.append({})
        calls[int(match[1])][match[2]] = value
    elif match := PART.fullmatch(path):
        is_text = match[1] in (None, "text")
        part = {"type": "text", "text": value} if is_text else {"type": "image"}
        item.setdefault("content", []).append(part)
    elif path in ("role", "content", "tool_call_id", "name", "finish_reason"):
        item[path] = value
