"""Requests and responses of a model's API, {request, response} one a line: OpenAI's chat, its
Responses (also as the text of a stream), Anthropic's Messages. And LiteLLM's standard logging
payload, and rows of its spend log where content is stored."""

from functools import partial
from pathlib import PurePath
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, each
from convbench.formats.traces import read_steps
from convbench.formats.values import as_list, as_mapping, as_text, at, first_of, kept

whole_file = True
OWN = ("messages", "input", "system", "instructions")  # what of a request was said
FACTS = ("model", "status", "custom_llm_provider", "request_tags", "end_user", "session_id")


def recognises(first: object) -> bool:
    pair = as_mapping(first)
    asked, reply = as_mapping(pair.get("request")), pair.get("response")
    signs = {"choices", "output", "content"} & as_mapping(reply).keys()
    is_reply = bool(signs) or "response.c" in as_text(reply)[:400]
    is_payload = "call_type" in pair and bool({"response_cost", "spend"} & pair.keys())
    return is_payload or (is_reply and bool({"messages", "input"} & asked.keys()))


def read(lines: Any, where: str) -> Items:
    """Yield the conversations of a file: a request that names the response before it has only what
    is new, any other the whole history, of which copies are dropped later."""
    yield from read_steps(each(lines, partial(_read, {}, PurePath(where).name)))


def _read(begun: dict[Any, list[Any]], name: str, line: dict[str, Any]) -> LogConversation:
    asked, reply = as_mapping(line.get("request")), _response(line.get("response"))
    if not reply:
        raise LeftOut("the content was not stored")
    if "call_type" in line:
        asked = as_mapping(line.get("model_parameters")) | kept(line, "messages")
    given = asked.get("input")
    given = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    given = begun.get(asked.get("previous_response_id"), []) + given
    begun[reply.get("id")] = given + as_list(reply.get("output"))
    log = LogConversation(kind="llm", id=line.get("trace_id") or line.get("session_id") or name)
    log.tools, log.time = asked.get("tools"), line.get("startTime")
    log.temperature = first_of({**reply, **asked}, "temperature")
    log.failure = "the call failed" if line.get("status") == "failure" else None
    log.metadata = kept(asked, "model", "max_tokens", "metadata") | kept(reply, "status")
    log.metadata |= kept(line, *FACTS)
    finish = reply.get("stop_reason") or at(reply, "incomplete_details", "reason")
    usage = usage_of(reply.get("usage"), line.get("response_cost", line.get("spend")))
    own = {"model": line.get("model") or reply.get("model"), "group": reply.get("id")}
    own |= {"usage": usage} | ({"finish": finish} if finish else {})
    content = {key: value for key, value in reply.items() if key != "usage"}
    asked = kept(asked, *OWN) | ({"input": given} if given else {})
    log.messages = read_exchange(asked, content, **own)
    return log


def _response(value: Any) -> dict[str, Any]:
    """Return a response, that of a stream's last event too."""
    last = as_mapping(value)
    for event in as_text(value).split("\n") if isinstance(value, str) and not last else ():
        last = as_mapping(at(event.removeprefix("data: "), "response")) or last
    return last
