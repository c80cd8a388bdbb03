"""What a server may send as a reply: nothing of it leads away, floods, crashes or costs twice."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from convbench.engine import Caller, Journal, RetryPolicy
from convbench.errors import ModelError
from convbench.models import open_model
from convbench.models.litellm_model import load_litellm
from convbench.models.rule import RuleModel
from convbench.schema import Completion, Message, Sampling
from convbench.util.untrusted import loads, safe_count, safe_dollars, safe_text
from tests.helpers.routes import ROUTES, SECRET, Route, whole
from tests.support.exhaustive import by_turns
from tests.support.stranger import Answer, Stranger

HELLO: list[Message] = [{"role": "user", "content": "hello there"}]
OWN = next(route for route in ROUTES if route.provider == "openai")
SOME = [r for r in ROUTES if r.provider in ("openai", "anthropic", "azure", "gemini", "mistral")]
Reply = Callable[[Route], Any]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    for route in ROUTES:
        for name in route.variables:
            monkeypatch.setenv(name, SECRET)


def ask(route: Route, url: str, *, wait: float = 20.0) -> Completion:
    """Return the reply that `url` gives to one call on this route."""
    load_litellm()  # which takes seconds, and is no part of the call

    async def main() -> Completion:
        model = open_model(route.ref, api_base=url, note=lambda _: None)
        try:
            async with asyncio.timeout(wait):
                return await model.complete(HELLO, Sampling(max_tokens=9), key="k")
        finally:
            await model.aclose()

    return asyncio.run(main())


def answered(route: Route, answer: Answer) -> Completion:
    with Stranger(answer) as server:
        return ask(route, server.url)


def refused(route: Route, answer: Answer) -> ModelError:
    """Return the error of a call; it is one line and holds no key."""
    with pytest.raises(ModelError) as caught:
        answered(route, answer)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 700
    assert SECRET not in line
    assert "Traceback" not in line
    return caught.value


def body(raw: bytes | str, **more: Any) -> Answer:
    """Return what answers with these bytes."""
    data = raw.encode() if isinstance(raw, str) else raw
    return lambda _request, _asked: web.Response(
        body=data, **{"content_type": "application/json", **more}
    )


def named(value: Any) -> str | None:
    """Return a route's provider as a parameter's name."""
    return getattr(value, "provider", None)


ids = {"ids": named}


@cache
def bomb(megabytes: int) -> bytes:
    """Return so many megabytes of blanks, compressed."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [squeeze.compress(b" " * (1 << 20)) for _ in range(megabytes)]
    return b"".join(pieces) + squeeze.flush()


# -- errors


LONG = {
    "less-than signs": b"<" * 3_000_000,
    "open scripts": b"<script" * 400_000,
    "a page": b"<html><head><title>502 Bad Gateway</title></head>" + b"<p>x" * 100_000,
    "nested errors": b'{"error":' * 5000 + b"1" + b"}" * 5000,
    "nested message": b'{"error": {"message": ' + b"[" * 900 + b"]" * 900 + b"}}",
    "a long word": b'{"error": {"message": "' + b"a" * 900_000 + b'"}}',
    "no text": bytes(range(256)) * 900,
    "colours": b'{"error": {"message": "\\u001b[31mred\\u001b[0m \\u202e\\ud800"}}',
}


# -- JSON


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize(
    "said", ["a \ud800 b", "\udfff", "x\udc00\ud800y", "\x00 nul", "\U0001f600"]
)
def test_any_text_is_kept_once_and_paid_once(route: Route, said: str, tmp_path: Path) -> None:
    """A lone surrogate could not be written, and the call was made and billed again for ever."""
    raw = json.dumps(whole(route, said)).encode()
    with Stranger(body(raw)) as server:
        first = through_engine(route, server.url, journal=tmp_path / "calls.jsonl")
        again = through_engine(route, server.url, journal=tmp_path / "calls.jsonl")
        assert len(server.asked) == 1
    assert first.content == again.content == safe_text(said)
    str(first.content).encode()


STRANGE: dict[str, Reply] = {
    "a dict": lambda route: whole(route, {"a": 1}),
    "a number": lambda route: whole(route, 7),
    "true": lambda route: whole(route, True),
    "a list of numbers": lambda route: whole(route, [1, 2]),
    "a list": lambda _route: [],
    "a string": lambda _route: "hello",
    "nothing": lambda _route: None,
    "no choices": lambda route: {**whole(route), "choices": [], "content": [], "candidates": []},
    "choices in a dict": lambda route: {**whole(route), "choices": {"a": 1}, "content": {"a": 1},
                                        "candidates": {"a": 1}},
    "choices of null": lambda route: {**whole(route), "choices": [None], "content": [None],
                                      "candidates": [None]},
}  # fmt: skip


def text_or_failure(route: Route, answer: Answer) -> None:
    """Assert that a call gives text, or fails in a way that concerns this conversation only."""
    found: Completion | ModelError
    try:
        found = answered(route, answer)
    except ModelError as error:
        found = error
    if isinstance(found, Completion):
        assert isinstance(found.content, str)
    else:
        assert getattr(found, "stops_run", False) is False
        assert "\n" not in str(found)


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize("kind", STRANGE)
def test_a_reply_of_another_shape_fails_or_is_text(route: Route, kind: str) -> None:
    """It is no crash, no other type, and stops no run: another try may give a reply."""
    text_or_failure(route, body(json.dumps(STRANGE[kind](route))))


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize(("depth", "where"), by_turns([300, 2000, 200_000], ["beside", "within"]))
def test_deep_nesting_breaks_the_reply_only(route: Route, depth: int, where: str) -> None:
    deep = "[" * depth + "]" * depth
    plain = json.dumps(whole(route, "TEXT"))
    raw = plain.replace('"TEXT"', deep) if where == "within" else f'{{"x": {deep}, {plain[1:]}'
    text_or_failure(route, body(raw))


def test_a_million_choices_are_one_reply() -> None:
    one = json.dumps(whole(OWN)["choices"][0])
    raw = json.dumps(whole(OWN)).replace(
        f"[{one}]", "[" + ",".join([one] + ["1"] * 1_000_000) + "]"
    )
    assert answered(OWN, body(raw)).content == "fine words"


@pytest.mark.parametrize("route", SOME[:1], **ids)
@pytest.mark.parametrize("kind", ["twice", "NaN", "latin", "html type", "no type", "charset"])
def test_odd_json_is_read(route: Route, kind: str) -> None:
    plain = json.dumps(whole(route))
    more: dict[str, Any] = {}
    if kind == "twice":
        plain = '{"id": {"a": 1}, "usage": 7, "choices": 7, ' + plain[1:]
    if kind == "NaN":
        plain = '{"x": NaN, "y": -Infinity, ' + plain[1:]
    raw = plain.encode()
    if kind == "latin":
        raw = plain.replace("fine", "f\xefne").encode("latin-1")
    if kind == "html type":
        more["content_type"] = "text/html"
    if kind == "no type":
        more["content_type"] = "application/octet-stream"
    if kind == "charset":
        more["charset"] = "utf-16"
    reply = answered(route, body(raw, **more))
    assert reply.content == ("f\ufffdne words" if kind == "latin" else "fine words")


# -- usage


PARTS = {
    "anthropic": ("input_tokens", "output_tokens"),
    "gemini": ("promptTokenCount", "candidatesTokenCount"),
}
COUNTS: dict[str, tuple[Any, int | None]] = {
    "a float": (12.0, 12),
    "a string": ("12", 12),
    "a float in a string": ("12.0", 12),
    "null": (None, None),
    "NaN": (float("nan"), None),
    "infinite": (float("inf"), None),
    "negative": (-5, None),
    "absurd": (1e300, None),
    "many digits": (10**400, None),
    "a list": ([12], None),
    "a dict": ({"a": 12}, None),
    "true": (True, None),
    "words": ("twelve", None),
}


@pytest.mark.parametrize("route", SOME[:1], **ids)
@pytest.mark.parametrize("usage", ["none", 7, [1], True, [{"prompt_tokens": 5}]], ids=str)
def test_a_usage_that_is_none_is_unknown(route: Route, usage: Any) -> None:
    reply = answered(route, body(json.dumps(whole(route, usage=usage))))
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)
    assert reply.cost_usd is None


@pytest.mark.parametrize("cost", [float("nan"), -1, "free", True, [0], float("inf")], ids=str)
def test_a_cost_that_is_none_is_unknown(cost: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": cost}
    assert answered(OWN, body(json.dumps(whole(OWN, usage=usage)))).cost_usd is None


# -- the parts


@pytest.mark.parametrize("value", [b"", b"{", b"[" * 100_000, b"\xff", b'{"a": 1} x', b"nope"])
def test_what_is_no_json_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError):
        loads(value)


def test_json_that_python_reads_becomes_json_that_can_be_kept() -> None:
    raw = b'{"\\ud800": [NaN, 1e999, 1' + b"0" * 400 + b', "\\udfff", true]}'
    assert loads(raw) == {"\ufffd": [None, None, None, "\ufffd", True]}


def test_counts_and_dollars() -> None:
    assert [safe_count(v) for v in (3, "3", 3.0, 2**60, "x", None, True)] == [3, 3, 3] + [None] * 4
    assert [safe_dollars(v) for v in (0.5, 1, -1, "1", None, True)] == [0.5, 1.0] + [None] * 4


def through_engine(
    route: Route, url: str, policy: RetryPolicy | None = None, journal: Path | None = None
) -> Completion:
    """Return the reply as a job gets it, with journal and deadline."""

    async def main() -> Completion:
        model = open_model(route.ref, api_base=url, note=lambda _: None)
        kept = Journal(journal) if journal else None
        if kept is not None:
            kept.load_calls()
        try:
            caller = Caller(kept, retry=policy or RetryPolicy())
            return await caller.complete(model, HELLO, Sampling(max_tokens=9), key="k")
        finally:
            await model.aclose()
            if kept is not None:
                kept.close()

    return asyncio.run(main())


def test_a_rule_says_what_can_be_written() -> None:
    rule = RuleModel("rule:x", rule=lambda _messages, _example: "a \ud800 b")
    said = asyncio.run(rule.complete(HELLO, Sampling(), key="k"))
    assert said.content == "a \ufffd b"
