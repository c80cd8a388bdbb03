"""Spans of OpenTelemetry's GenAI conventions and of OpenInference (Phoenix), flattened or as OTLP.

Each call of a model logs its whole history, so an agent's last call holds its conversation, and
what another begins with is a copy; a sub-agent's calls have a history of their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.dialects import as_list, as_mapping, as_number, as_text, as_time
from convbench.formats.log import Item, LeftOut, LogConversation, LogMessage
from convbench.formats.payload import read_exchange, read_payload

whole_file = True
INDEXED = re.compile(
    r"(?:llm|gen_ai)\.(?:(input_messages|output_messages|prompt|completion))\.(\d+)\.(.+)"
)
"""Attributes that write a list of messages by index."""
CALL = re.compile(r"tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(name|arguments|id)")


def recognises(first: object) -> bool:
    """A span, a list or a mapping of lists of them, or OTLP."""
    if isinstance(first, list):
        return bool(first) and recognises(first[0])
    if not isinstance(first, dict):
        return False
    if "resourceSpans" in first or {"attributes", "name"} <= first.keys():
        return "resourceSpans" in first or bool(
            first.keys() & {"trace_id", "traceId", "context", "span_id"}
        )
    return bool(first) and all(isinstance(v, list) and v and recognises(v) for v in first.values())


def read(values: Any, where: str) -> Iterator[Item]:
    """Yield the calls of each trace with their histories; of a trace without one that has its
    content, what its agent was asked and said."""
    traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in _spans(values):
        context = as_mapping(span.get("context"))
        trace = span.get("trace_id") or span.get("traceId") or context.get("trace_id")
        traces[as_text(trace)].append(span)
    for name, spans in traces.items():
        spans.sort(key=lambda s: as_text(s.get("start_time") or s.get("startTimeUnixNano")))
        logs: list[LogConversation] = []
        for kind in ("llm", "agent", "chain"):
            if not logs:
                read_ones = [_read(span, name) for span in spans if _kind(span) == kind]
                logs = [x for x in read_ones if any(m.role == "assistant" for m in x.messages)]
        if not logs:
            yield LeftOut("a trace without the content of a call")
        yield from logs


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
        return _flat(as_mapping(raw), "")
    return {as_text(item.get("key")): _plain_value(item.get("value")) for item in raw}


def _flat(fields: Mapping[str, Any], before: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in fields.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and not name.endswith(("messages", "value")):
            out |= _flat(value, f"{name}.")
        else:
            out[name] = value
    return out


def _plain_value(value: Any) -> Any:
    inner = next(iter(value.values()), None) if isinstance(value, dict) else value
    return (
        [_plain_value(v) for v in inner["values"]]
        if isinstance(inner, dict) and "values" in inner
        else inner
    )


def _kind(span: Mapping[str, Any]) -> str:
    fields = _attributes(span)
    kind = as_text(fields.get("openinference.span.kind") or span.get("span_kind")).lower()
    operation = as_text(fields.get("gen_ai.operation.name"))
    if kind in ("llm", "agent", "chain", "tool"):
        return kind
    if (
        operation in ("chat", "generate_content", "text_completion")
        or "gcp.vertex.agent.llm_request" in fields
    ):
        return "tool" if operation == "execute_tool" else "llm"
    if operation == "invoke_agent":
        return "agent"
    return "tool" if operation == "execute_tool" else "chain"


def _read(span: Mapping[str, Any], trace: str) -> LogConversation:
    fields = _attributes(span)
    for event in span.get("span_events") or span.get("events") or ():
        fields = _attributes(as_mapping(event)) | fields
    names = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    model = next((fields[n] for n in names if fields.get(n)), None)
    counts = (
        ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
        ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
    )
    tokens = [
        next((int(n) for k in ks if (n := as_number(fields.get(k))) is not None), None)
        for ks in counts
    ]
    asked, said = _messages(fields)
    if said is None:
        asked, said = _event_messages(span)
    messages = read_exchange(asked, said, model=model, usage=(*tokens, None))
    system = read_payload(fields.get("gen_ai.system_instructions"), "system")
    if system and not any(m.role == "system" for m in messages):
        messages = [LogMessage("system", "\n".join(m.text for m in system)), *messages]
    tools = [
        fields[k] for k in sorted(fields) if re.fullmatch(r"llm\.tools\.\d+\.tool\.json_schema", k)
    ]
    return LogConversation(
        messages,
        id=trace,
        tools=as_list(fields.get("gen_ai.tool.definitions")) or tools,
        temperature=as_number(fields.get("gen_ai.request.temperature")),
        time=as_time(span.get("start_time") or span.get("startTimeUnixNano")),
        metadata={
            "span": span.get("name"),
            "session": fields.get("session.id") or fields.get("gen_ai.conversation.id"),
        },
    )


def _event_messages(span: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what a call was given and what it gave, of events: `gen_ai.user.message` and the like
    before `gen_ai.choice`."""
    asked: list[Any] = []
    said = None
    for event in span.get("span_events") or span.get("events") or ():
        name = as_text(event.get("name") or event.get("event_name"))
        body = as_mapping(event.get("body")) or _attributes(as_mapping(event))
        match = re.fullmatch(r"gen_ai\.(system|user|assistant|tool)\.message", name)
        if match:
            asked.append({"role": match[1], **body})
        elif name == "gen_ai.choice":
            said = as_mapping(body.get("message")) or body
    return asked, None if said is None else {"role": "assistant", **said}


def _messages(fields: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what a call was given and what it gave, by the first convention that has it."""
    lists: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for name, value in fields.items():
        match = INDEXED.fullmatch(name)
        if match:
            _set(lists[match[1]].setdefault(int(match[2]), {}), match[3], value)
    indexed = {kind: [items[i] for i in sorted(items)] for kind, items in lists.items()}
    pairs = (
        (fields.get("gen_ai.input.messages"), fields.get("gen_ai.output.messages")),
        (indexed.get("input_messages"), indexed.get("output_messages")),
        (indexed.get("prompt"), indexed.get("completion")),
        (fields.get("gcp.vertex.agent.llm_request"), fields.get("gcp.vertex.agent.llm_response")),
        (fields.get("input.value"), fields.get("output.value")),
    )
    return next((pair for pair in pairs if pair[1] not in (None, "", [])), (None, None))


def _set(item: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of a message by its flattened name."""
    path = path.removeprefix("message.")
    match = CALL.fullmatch(path)
    if match:
        calls = item.setdefault("tool_calls", [])
        while len(calls) <= int(match[1]):
            calls.append({})
        calls[int(match[1])][match[2]] = value
    elif match := re.fullmatch(r"contents\.\d+\.message_content\.(text|image.*)", path):
        part = {"type": "text", "text": value} if match[1] == "text" else {"type": "image"}
        item.setdefault("content", []).append(part)
    elif path in ("role", "content", "tool_call_id", "name", "finish_reason"):
        item[path] = value
