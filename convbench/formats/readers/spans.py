"""Spans of OpenTelemetry's GenAI conventions and of OpenInference, flattened or as OTLP."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LogConversation, each
from convbench.formats.traces import read_steps
from convbench.formats.values import as_list, as_mapping, as_text, at, first_of, parsed

whole_file = True
MARKS = {"trace_id", "traceId", "span_id", "context"}
WRAPS = ("message", "tool_call", "message_content", "tool")
"""Parts of OpenInference's names that say what the next one is of."""
EVENT = re.compile(r"gen_ai\.(?:(system|user|assistant|tool)\.message|choice)")
"""Events that are a message each."""


def recognises(first: object) -> bool:
    span = next(_spans(first), {})
    return "name" in span and bool(MARKS & span.keys())


def read(values: Any, where: str) -> Items:
    """Yield the calls of each trace with their histories."""
    yield from read_steps(each(_spans(values), _step))


def _spans(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "attributes" in value:
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(value, list) or isinstance(item, list):
                yield from _spans(item)


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes by their dotted names; OTLP lists them with their types."""
    raw = holder.get("attributes")
    if isinstance(raw, list):
        return {as_text(item.get("key")): _untyped(item.get("value")) for item in raw}
    return as_mapping(raw)


def _untyped(value: Any) -> Any:
    inner: Any = next(iter(as_mapping(value).values()), None)
    is_list = isinstance(inner, dict) and "values" in inner
    return [_untyped(item) for item in inner["values"]] if is_list else inner


def _tree(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the objects and lists that their dotted names write."""
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        parts = name.replace(".contents.", ".content.").split(".")
        *path, last = [part for part in parts if parts[0] != "llm" or part not in WRAPS]
        node: Any = tree
        for part in path:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.setdefault(last, value)
    return tree


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdigit() for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(value) for key, value in node.items()}


def _step(span: Mapping[str, Any]) -> LogConversation:
    events = [as_mapping(event) for event in as_list(first_of(span, "span_events", "events"))]
    holders = [_attributes(holder) for holder in (*reversed(events), span)]
    fields = _listed(_tree({k: v for holder in holders for k, v in holder.items()}))
    talk = []
    for event in events:
        body = as_mapping(event.get("body")) or _attributes(event)
        if match := EVENT.fullmatch(as_text(first_of(event, "name", "event_name"))):
            inner = parsed(body.get("message") or body)
            inner = {"content": inner} if isinstance(inner, list) else as_mapping(inner)
            parts = as_list(inner.get("content")) or inner.get("content")
            talk.append({"role": match[1] or "assistant", **inner, "content": parts})

    def get(*names: str) -> Any:
        return next((x for name in names if (x := at(fields, *name.split("."))) is not None), None)

    pairs = (
        (get("gen_ai.input.messages"), get("gen_ai.output.messages")),
        (get("llm.input_messages", "input.value"), get("llm.output_messages")),
        (get("gen_ai.prompt"), get("gen_ai.completion")),
        (get("gcp.vertex.agent.llm_request"), get("gcp.vertex.agent.llm_response")),
        (get("input.value"), get("output.value")),
        (talk[:-1], talk[-1:]),
    )
    asked, said = next((pair for pair in pairs if pair[1] not in (None, "", [])), pairs[-1])
    if system := get("gen_ai.system_instructions"):
        asked = {"system": parsed(system), "messages": asked}
    kind = as_text(get("openinference.span.kind") or span.get("span_kind")).lower()
    if kind not in ("llm", "agent", "chain", "tool"):
        other = "llm" if get("gcp.vertex.agent.llm_request") else ""
        kind = as_text(get("gen_ai.operation.name")) or other
    context = as_mapping(span.get("context"))
    log = LogConversation(id=first_of(span, "trace_id", "traceId") or context.get("trace_id"))
    log.time = first_of(span, "start_time", "startTimeUnixNano")
    log.tools = get("gen_ai.tool.definitions")
    log.tools = log.tools or [at(tool, "json_schema") for tool in as_list(get("llm.tools"))]
    log.temperature = get("gen_ai.request.temperature")
    session = get("session.id", "gen_ai.conversation.id")
    log.metadata = {"span": span.get("name"), "session": session}
    asked_tokens = get("gen_ai.usage.input_tokens", "llm.token_count.prompt")
    said_tokens = get("gen_ai.usage.output_tokens", "llm.token_count.completion")
    model = get("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    own = {"model": model, "usage": usage_of({"input": asked_tokens, "output": said_tokens})}
    log.messages = read_exchange(asked, said, **own)
    log.step = first_of(span, "span_id", "spanId") or context.get("span_id")
    log.kind, log.within = kind, first_of(span, "parent_id", "parentSpanId", "parent_span_id")
    return log
