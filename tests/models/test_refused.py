"""Refusals, endings and usages as real providers send them, over a real connection."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from multidict import CIMultiDict

from convbench.errors import BrokenReply, FatalModelError, ModelError, TransientModelError
from convbench.models.openai import OpenAIModel
from convbench.models.parameters import Parameters, UnclearRefusal, read_refusal
from convbench.models.prices import Price
from convbench.schema import Completion, Message, Sampling
from tests.helpers.refused import (
    ENDINGS,
    FAULTS,
    QUOTA,
    REFUSALS,
    THOUGHTS,
    USAGES,
    Refusing,
    Row,
    openai,
    reply,
)
from tests.support.serve import LocalServer

SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}}
ALL = Sampling(
    temperature=0.7, top_p=0.9, seed=2**40 + 5, max_tokens=64, reasoning_effort="low",
    reply_schema=SCHEMA,
)  # fmt: skip
MESSAGES: list[Message] = [
    {"role": "system", "content": "Answer."},
    {"role": "user", "content": "A or B?"},
]


def opened(server: LocalServer, **more: Any) -> OpenAIModel:
    parameters = Parameters(
        "openai/m", structured="json_schema", note=more.pop("note", lambda _: None)
    )
    return OpenAIModel(
        "openai/m", "m", f"{server.url}/v1", key="sk-test", key_variable="ANY_API_KEY",
        parameters=parameters, price=Price(1e-6, 1e-4), **more,
    )  # fmt: skip


def asked(server: LocalServer, sampling: Sampling = ALL, *, learnt: bool = False) -> Completion:
    """Return a reply; `learnt`: of a model that is known to take neither temperature nor
    `max_tokens`."""

    async def ask() -> Completion:
        model = opened(server)
        for name in ("temperature", "max_tokens") if learnt else ():
            said = f"{name}, not max_completion_tokens".encode()
            model.parameters.learn(model.refusal(400, said, {}), {name: 1, "messages": MESSAGES})
        try:
            return await model.complete(MESSAGES, sampling, key="k")
        finally:
            await model.aclose()

    return asyncio.run(ask())


def test_the_table_names_every_provider_and_every_case_of_the_field() -> None:
    names = [str(row[0]) for row in (*REFUSALS, *FAULTS, *USAGES, *ENDINGS, *THOUGHTS)]
    found = {case for name in names for case in re.findall(r"wire-\d+", name)}
    assert found == {f"wire-{number}" for number in range(1, 11)}
    assert {name.partition(":")[0] for name in names} >= {
        "OpenAI", "Azure", "Anthropic", "Google", "xAI", "DeepSeek", "Qwen", "Moonshot", "Zhipu",
        "Mistral", "Groq", "Together", "Fireworks", "Cohere", "OpenRouter", "Bedrock", "llama.cpp",
        "Ollama", "LM Studio",
    }  # fmt: skip


def named(value: object) -> str:
    return str(value[0] if isinstance(value, tuple) else value)[:60]


@pytest.mark.parametrize("row", REFUSALS, ids=named)
def test_complete_raises_what_a_refusal_means_in_the_providers_words(row: Row) -> None:
    """Once no parameter is left to leave out."""
    _, status, headers, body, meaning, words = row
    with Refusing(lambda _: (status, headers, body)) as server:
        with pytest.raises(ModelError) as caught:
            asked(server, Sampling(temperature=1.0, max_tokens=9), learnt=True)
        told = str(caught.value)
        assert words in told
        assert "\n" not in told
        assert "203.0.113.9" not in told
        assert isinstance(caught.value, TransientModelError) == (meaning == "wait")
        stops = isinstance(caught.value, FatalModelError) and caught.value.stops_run
        assert stops == (meaning == "stop")
        assert isinstance(caught.value, UnclearRefusal) == (meaning == "unclear")
        assert len(server.bodies) == 1 + ("System role" in told)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({"retry-after-ms": "700", "Retry-After": "9"}, {}, 0.7),
        ({}, {"error": {"details": [{"retryDelay": "1s"}]}}, 1.0),
        ({"Retry-After": "86400"}, {}, 86400.0),
        ({"Retry-After": "soon"}, {}, None),
        ({}, {}, None),
    ],
)
def test_read_refusal_says_how_long_to_wait(headers: Any, body: Any, seconds: float | None) -> None:
    refusal = read_refusal("m", 429, json.dumps(body).encode(), CIMultiDict(headers))
    assert isinstance(refusal, TransientModelError)
    assert refusal.retry_after == seconds


def test_a_quota_is_a_limit_a_minute_where_the_provider_means_that() -> None:
    """At Alibaba (Qwen) the code for no credit is over in about a minute."""
    body = openai(QUOTA, "insufficient_quota", "insufficient_quota")
    for host, kind in (("dashscope.aliyuncs.com", TransientModelError),
                       ("api.openai.com", FatalModelError)):  # fmt: skip
        model = OpenAIModel("openai/qwen", "qwen", f"https://{host}/v1", key="k",
                            key_variable="K", parameters=Parameters("openai/qwen"))  # fmt: skip
        assert isinstance(model.refusal(429, body, {}), kind)


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        (openai("Unsupported value", code="unsupported_value", param="temperature"), "temperature"),
        (openai("`temperature` is deprecated for this model."), "temperature"),
        (openai('Unknown name "seed": Cannot find field.'), "seed"),
        (openai("top_p: may only be 1"), "top_p"),
        ({"detail": [{"loc": ["body", "reasoning_effort"], "msg": "extra"}]}, "reasoning_effort"),
        (openai("Use 'max_completion_tokens' instead.", param="max_tokens"), "max_tokens"),
        (openai("Invalid schema for response_format 'x'"), "response_format"),
        (openai("compiled grammar is too large"), "response_format"),
    ],
)
def test_complete_leaves_a_refused_parameter_out_from_then_on_and_says_so_once(
    body: Any, gone: str
) -> None:
    notes: list[str] = []
    with Refusing(
        lambda sent: (400, {}, body) if gone in sent else (200, {}, reply(usage={}))
    ) as server:

        async def ask() -> list[Completion]:
            model = opened(server, note=notes.append)
            try:
                return [await model.complete(MESSAGES, ALL, key=str(i)) for i in range(3)]
            finally:
                await model.aclose()

        replies = asyncio.run(ask())
    assert [gone in sent for sent in server.bodies] == [True, False, False, False]
    assert len(notes) == (0 if gone == "max_tokens" else 1)
    named = gone not in ("max_tokens", "response_format")
    assert all(one.left_out == ((gone,) if named else ()) for one in replies)


def test_complete_puts_a_refused_system_message_into_the_first_user_message() -> None:
    body = openai("System role not supported")
    with Refusing(
        lambda sent: (
            (400, {}, body)
            if sent["messages"][0]["role"] == "system"
            else (200, {}, reply(usage={}))
        )
    ) as server:
        asked(server)
    assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Answer.\n\nA or B?"}]


def test_complete_sends_a_seed_modulo_two_to_the_31() -> None:
    with Refusing(lambda _: (200, {}, reply(usage={}))) as server:
        asked(server)
    assert server.bodies[0]["seed"] == 5


@pytest.mark.parametrize(("name", "word"), ENDINGS)
def test_complete_reads_a_finish_reason(name: str, word: str) -> None:
    finish = name.partition(":")[0]
    with Refusing(lambda _: (200, {}, reply(finish=word, usage={}))) as server:
        if finish == "failed":
            with pytest.raises(BrokenReply, match="the reply failed"):
                asked(server)
            return
        assert asked(server).finish_reason == finish


@pytest.mark.parametrize(
    "choice",
    [
        {"native_finish_reason": "MAX_TOKENS"},
        {"provider_specific_fields": {"native_finish_reason": "model_length"}},
    ],
)
def test_complete_believes_a_routers_native_finish_reason(choice: dict[str, Any]) -> None:
    with Refusing(lambda _: (200, {}, reply(usage={}, **choice))) as server:
        assert asked(server).finish_reason == "length"


@pytest.mark.parametrize(("who", "usage", "tokens", "dollars"), USAGES, ids=named)
def test_complete_counts_what_is_billed(
    who: str, usage: Any, tokens: tuple[int | None, int | None], dollars: float | None
) -> None:
    with Refusing(lambda _: (200, {}, reply(usage=usage))) as server:
        said = asked(server)
    assert (said.prompt_tokens, said.completion_tokens) == tokens
    if dollars is not None:
        assert said.cost_usd == pytest.approx(dollars)


def test_complete_believes_a_proxys_header_for_the_cost() -> None:
    headers = {"x-litellm-response-cost": "0.125"}
    with Refusing(
        lambda _: (200, headers, reply(usage={"prompt_tokens": 1, "completion_tokens": 1}))
    ) as server:
        assert asked(server).cost_usd == 0.125


@pytest.mark.parametrize(("who", "message", "thought"), THOUGHTS, ids=named)
def test_complete_reads_reasoning_where_each_provider_puts_it(
    who: str, message: dict[str, Any], thought: str | None
) -> None:
    with Refusing(lambda _: (200, {}, reply(usage={}, message=message))) as server:
        said = asked(server)
    assert said.content == "A."
    assert (said.reasoning and said.reasoning.text) == thought


@pytest.mark.parametrize(("who", "body", "kind", "words"), FAULTS, ids=named)
def test_complete_takes_what_comes_in_a_200_for_this_conversations_outcome(
    who: str, body: Any, kind: type[ModelError], words: str
) -> None:
    with (
        Refusing(lambda _: (200, {}, body)) as server,
        pytest.raises(kind, match=words) as caught,
    ):
        asked(server)
    assert not getattr(caught.value, "stops_run", False)


def test_complete_returns_the_words_of_a_refusal_as_a_filtered_reply() -> None:
    message = {"content": None, "refusal": "I cannot help with that."}
    with Refusing(lambda _: (200, {}, reply(usage={}, message=message))) as server:
        said = asked(server)
    assert (said.content, said.finish_reason) == ("I cannot help with that.", "filter")
