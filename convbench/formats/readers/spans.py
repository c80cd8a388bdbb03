"""Spans of OpenTelemetry's GenAI conventions and of OpenInference, flattened or as OTLP."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LogConversation, each
from convbench.formats.traces import read_steps
from convbench.formats.values import as_list, as_mapping, as_text, at, first_of, kept, parsed

whole_file = True
# What OpenInference's names say beside the path: what an item of a list is, and `contents`.
WRAP = re.compile(r"(?<=\d)\.(?:message(?:_content)?|tool(?:_call)?)(?=\.)|(?<=\.content)s(?=\.)")
EVENT = re.compile(r"gen_ai\.(?:(system|user|assistant|tool)\.message|choice)")  # each a message


def recognises(first: object) -> bool:
    span = next(_spans(first), {})
    return "name" in span and bool({"trace_id", "traceId", "span_id", "context"} & span.keys())


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
    raw = holder.get("attributes")
    if isinstance(raw, list):  # of OTLP, {"key": …, "value": {"stringValue": …}}
        raw = {one["key"]: next(iter((one.get("value") or {}).values()), None) for one in raw}
    return {WRAP.sub("", name): value for name, value in as_mapping(raw).items()}


def _tree(fields: Mapping[str, Any]) -> Any:
    """Return attributes as the objects and lists that their dotted names write."""
    inside: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in fields.items():
        first, _, rest = name.partition(".")
        inside[first][rest] = value
    tree = {key: some[""] if "" in some else _tree(some) for key, some in inside.items()}
    is_list = bool(tree) and all(map(str.isdigit, tree))
    return [tree[key] for key in sorted(tree, key=int)] if is_list else tree


def _step(span: dict[str, Any]) -> Items:
    span = as_mapping(span.get("context")) | span
    events = [as_mapping(event) for event in as_list(first_of(span, "span_events", "events"))]
    holders = map(_attributes, (*reversed(events), span))
    tree = _tree({name: value for holder in holders for name, value in holder.items()})
    gen, llm, adk = at(tree, "gen_ai"), at(tree, "llm"), at(tree, "gcp", "vertex", "agent")
    talk = [message for event in events for message in _said(event)]
    pairs = (
        (at(gen, "input", "messages"), at(gen, "output", "messages")),
        (at(llm, "input_messages") or at(tree, "input", "value"), at(llm, "output_messages")),
        (at(gen, "prompt"), at(gen, "completion")),
        (at(adk, "llm_request"), at(adk, "llm_response")),
        (at(tree, "input", "value"), at(tree, "output", "value")),
    )
    asked, said = next((pair for pair in pairs if pair[1]), (talk[:-1], talk[-1:]))
    if system := at(gen, "system_instructions"):
        asked = {"system": parsed(system), "messages": asked}
    model = at(gen, "response", "model") or at(gen, "request", "model") or at(llm, "model_name")
    counts = {f"{name}_tokens": n for name, n in as_mapping(at(llm, "token_count")).items()}
    usage = usage_of(at(gen, "usage") or counts)
    log = LogConversation(read_exchange(asked, said, model=model, usage=usage))
    kind = at(tree, "openinference", "span", "kind") or at(gen, "operation", "name")
    log.id, log.step = first_of(span, "trace_id", "traceId"), first_of(span, "span_id", "spanId")
    log.within = first_of(span, "parent_id", "parentSpanId", "parent_span_id")
    log.kind = as_text(kind or ("llm" if at(adk, "llm_request") else span.get("span_kind"))).lower()
    log.time = first_of(span, "start_time", "startTimeUnixNano")
    log.temperature = at(gen, "request", "temperature")
    schemas = [at(tool, "json_schema") for tool in as_list(at(llm, "tools"))]
    log.tools = at(gen, "tool", "definitions") or schemas
    session = at(tree, "session", "id") or at(gen, "conversation", "id")
    log.metadata = {"span": span.get("name"), "session": session}
    yield log


def _said(event: dict[str, Any]) -> list[dict[str, Any]]:
    match = EVENT.fullmatch(as_text(first_of(event, "name", "event_name")))
    body = as_mapping(event.get("body")) or _attributes(event)
    inner = as_mapping(body.get("message")) or body
    content = first_of(inner, "content", "message")
    own = kept(inner, "role", "tool_calls") | {"content": as_list(content) or content}
    return [{"role": match[1] or "assistant", **own}] if match else []
