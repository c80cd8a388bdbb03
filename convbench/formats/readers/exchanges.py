"""Requests of OpenAI's and Anthropic's APIs with their responses; LiteLLM's payloads and spend."""

from functools import partial
from pathlib import PurePath
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, each
from convbench.formats.traces import read_steps
from convbench.formats.values import as_list, as_mapping, at, first_of, kept

whole_file = True
FACTS = ("model", "status", "custom_llm_provider", "request_tags", "end_user", "session_id")


def recognises(first: object) -> bool:
    line = as_mapping(first)
    is_asked = {"messages", "input"} & as_mapping(line.get("request")).keys()
    is_pair = is_asked and {"choices", "output", "content"} & _response(line.get("response")).keys()
    return bool(is_pair) or {"call_type", "messages", "response"} <= line.keys()


def read(lines: Any, where: str) -> Items:
    """Yield each conversation. A request that names the response before it has only what is new."""
    yield from read_steps(each(lines, partial(_read, {}, PurePath(where).name)))


def _read(begun: dict[Any, list[Any]], name: str, line: dict[str, Any]) -> Items:
    asked = as_mapping(line.get("request", line.get("model_parameters"))) | kept(line, "messages")
    reply = _response(line.get("response"))
    if not reply:
        raise LeftOut("the content was not stored")
    given = asked.get("input")
    given = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    given = begun.get(asked.get("previous_response_id"), []) + given
    begun[reply.get("id")] = given + as_list(reply.get("output"))
    prompt = kept(asked, "messages", "system", "instructions") | kept({"input": given}, "input")
    own = kept({"finish": at(reply, "incomplete_details", "reason")}, "finish")
    own |= {"model": line.get("model") or reply.get("model"), "group": reply.get("id")}
    own["usage"] = usage_of(reply.pop("usage", None), first_of(line, "response_cost", "spend"))
    log = LogConversation(read_exchange(prompt, reply, **own), kind="llm", tools=asked.get("tools"))
    log.id = line.get("trace_id") or line.get("session_id") or name
    log.time, log.temperature = line.get("startTime"), first_of({**reply, **asked}, "temperature")
    log.failure = "the call failed" if line.get("status") == "failure" else None
    log.metadata = kept({**reply, **line}, *FACTS) | kept(asked, "model", "max_tokens", "metadata")
    yield log


def _response(value: Any) -> dict[str, Any]:
    last = as_mapping(value)  # of the text of a stream, what its last event has
    for event in value.split("\n") if isinstance(value, str) and not last else ():
        last = as_mapping(at(event.removeprefix("data: "), "response")) or last
    return last
