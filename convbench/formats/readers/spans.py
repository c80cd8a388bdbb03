"""Spans of OpenTelemetry's GenAI conventions and of OpenInference, flattened or as OTLP."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LogConversation
from convbench.formats.traces import Step, read_steps
from convbench.formats.values import as_list, as_mapping, as_text, at, first_of, parsed

whole_file = True
MARKS = {"trace_id", "traceId", "span_id", "context"}
INDEXED = re.compile(
    r"(?:llm|gen_ai)\.((?:input_messages|output_messages|prompt|completion|tools)\.\d.*)"
)
"""Attributes that write a list by index."""
WRAPS = ("message", "tool_call", "message_content", "tool")
"""Parts of their names that say what the next one is of."""
EVENT = re.compile(r"gen_ai\.(?:(system|user|assistant|tool)\.message|choice)")
"""Events that are a message each."""


def recognises(first: object) -> bool:
    """A span, lists of spans, or OTLP."""
    span = next(_spans(first), {})
    return "name" in span and bool(MARKS & span.keys())


def read(values: Any, where: str) -> Items:
    """Yield the calls of each trace with their histories; of a trace without one that has its
    content, what its agents were asked and said."""
    yield from read_steps(map(_step, _spans(values)))


def _spans(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "attributes" in value:
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(value, list) or isinstance(item, list):
                yield from _spans(item)


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes by their dotted names: OTLP lists them with their types, some programs nest
    them."""
    raw = holder.get("attributes")
    if isinstance(raw, list):
        return {as_text(item.get("key")): _untyped(item.get("value")) for item in raw}
    return dict(_flat(as_mapping(raw), ""))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and not name.endswith(("messages.", "value.")):
        for key, item in value.items():
            yield from _flat(item, f"{name}{key}.")
    else:
        yield name.removesuffix("."), value


def _untyped(value: Any) -> Any:
    inner: Any = next(iter(value.values()), None) if isinstance(value, dict) else value
    is_list = isinstance(inner, dict) and "values" in inner
    return [_untyped(item) for item in inner["values"]] if is_list else inner


def _indexed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lists that attributes write by index."""
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        if match := INDEXED.fullmatch(name):
            *path, last = (part for part in match[1].split(".") if part not in WRAPS)
            node = tree
            for part in path:
                node = node.setdefault(part.replace("contents", "content"), {})
            node[last] = value
    return {name: _listed(value) for name, value in tree.items()}


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdigit() for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(value) for key, value in node.items()}


def _step(span: Mapping[str, Any]) -> Step:
    fields = _attributes(span)
    talk = []
    for event in map(as_mapping, as_list(first_of(span, "span_events", "events"))):
        own = _attributes(event)
        fields = own | fields
        body = as_mapping(event.get("body")) or own
        if match := EVENT.fullmatch(as_text(first_of(event, "name", "event_name"))):
            message = as_mapping(body.get("message")) or body
            talk.append({"role": match[1] or "assistant", **message})
    lists, given = _indexed(fields), fields.get("input.value")
    pairs = (
        (fields.get("gen_ai.input.messages"), fields.get("gen_ai.output.messages")),
        (lists.get("input_messages") or given, lists.get("output_messages")),
        (lists.get("prompt"), lists.get("completion")),
        (fields.get("gcp.vertex.agent.llm_request"), fields.get("gcp.vertex.agent.llm_response")),
        (given, fields.get("output.value")),
    )
    found = (pair for pair in pairs if pair[1] not in (None, "", []))
    asked, said = next(found, (talk[:-1], talk[-1:]))
    if system := fields.get("gen_ai.system_instructions"):
        asked = {"system": parsed(system), "messages": asked}
    kind = as_text(fields.get("openinference.span.kind") or span.get("span_kind")).lower()
    if kind not in ("llm", "agent", "chain", "tool"):
        other = "llm" if "gcp.vertex.agent.llm_request" in fields else ""
        kind = as_text(fields.get("gen_ai.operation.name")) or other
    context = as_mapping(span.get("context"))
    log = LogConversation(id=first_of(span, "trace_id", "traceId") or context.get("trace_id"))
    log.time = first_of(span, "start_time", "startTimeUnixNano")
    log.tools = fields.get("gen_ai.tool.definitions") or [
        at(tool, "json_schema") for tool in lists.get("tools", ())
    ]
    log.temperature = fields.get("gen_ai.request.temperature")
    session = first_of(fields, "session.id", "gen_ai.conversation.id")
    log.metadata = {"span": span.get("name"), "session": session}
    names = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
    usage = {
        "input": first_of(fields, "gen_ai.usage.input_tokens", "llm.token_count.prompt"),
        "output": first_of(fields, "gen_ai.usage.output_tokens", "llm.token_count.completion"),
    }
    own = {"model": first_of(fields, *names), "usage": usage_of(usage)}
    mark = first_of(span, "span_id", "spanId") or context.get("span_id")
    parent = first_of(span, "parent_id", "parentSpanId", "parent_span_id")
    return Step(kind, asked, said, log, own, mark, parent)
