"""What a server may send as a reply: nothing of it leads away, floods, crashes or costs twice."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from convbench.engine import Caller, Journal, RetryPolicy
from convbench.errors import FatalModelError, ModelError, TransientModelError, Usage
from convbench.models import open_model
from convbench.models.failures import BrokenReply
from convbench.models.litellm_model import load_litellm
from convbench.models.refusals import LONGEST_WAIT_S, error_message, retry_after
from convbench.models.rule import RuleModel
from convbench.net.body import ERROR_BYTES, REPLY_BYTES, BadBody, BoundedBody
from convbench.net.httpx_guard import guard_httpx
from convbench.net.untrusted_json import loads, safe_count, safe_dollars, safe_text
from convbench.schema import Completion, Message, Sampling
from tests.helpers.routes import ROUTES, SECRET, Route, whole
from tests.support.exhaustive import by_turns
from tests.support.stranger import Answer, Asked, Stranger

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


# -- redirects


@pytest.mark.parametrize(
    ("route", "status"),
    [(route, 307) for route in ROUTES] + by_turns(SOME, [301, 302, 303, 308]),
    ids=named,
)
def test_no_route_follows_a_redirect(route: Route, status: int) -> None:
    """Neither the key nor the conversation reaches the host that a reply points to."""
    with Stranger(lambda *_: web.json_response(whole(route))) as other:
        place = f"http://user:{SECRET}@127.0.0.1:{other.port}/elsewhere?token={SECRET}"

        def point(_request: web.BaseRequest, _asked: Asked) -> web.Response:
            return web.Response(status=status, headers={"Location": place})

        error = refused(route, point)
        assert other.asked == []
    assert isinstance(error, FatalModelError)
    assert error.stops_run
    assert f"redirects to http://127.0.0.1:{other.port}," in str(error)


@pytest.mark.parametrize("route", SOME[:1] + SOME[1:3], **ids)
@pytest.mark.parametrize(
    "place",
    ["http://[", "//evil\x7f.example/\x9b", "ftp://x/", "/here", "http://x:99999/", "?", "\\\\x"],
)
def test_a_location_that_is_none_is_no_way_either(route: Route, place: str) -> None:
    error = refused(route, lambda *_: web.Response(status=307, headers={"Location": place}))
    assert isinstance(error, ModelError)
    assert str(error).isprintable()


def test_a_redirect_that_leads_back_here_is_asked_once() -> None:
    """It would be billed at every turn."""
    with Stranger(
        lambda _r, asked: web.Response(status=307, headers={"Location": asked.path})
    ) as s:
        with pytest.raises(FatalModelError, match="redirects to"):
            ask(SOME[1], s.url)
        assert len(s.asked) == 1


@pytest.mark.parametrize("route", ROUTES[4:], **ids)
def test_synchronous_calls_are_guarded_too(route: Route) -> None:
    """litellm runs some providers so, in a thread."""
    litellm = load_litellm()
    with Stranger(lambda *_: web.json_response(whole(route))) as other:
        place = f"{other.url}/elsewhere"
        point = lambda *_: web.Response(status=307, headers={"Location": place})  # noqa: E731
        with Stranger(point) as first, guard_httpx(route.ref) as seen:
            with pytest.raises(Exception):  # noqa: B017 - whatever litellm makes of it
                litellm.completion(
                    model=route.ref, api_base=first.url, messages=HELLO, max_retries=0
                )
            assert len(first.asked) == 1
        assert other.asked == []
    assert "redirects to" in str(seen.refused)


def test_httpx_is_as_it_was_outside_of_a_call() -> None:
    """The guard is for calls of models; others' clients follow what they followed."""
    import httpx

    with Stranger(lambda *_: web.Response(text="there")) as other:
        point = lambda *_: web.Response(status=307, headers={"Location": other.url})  # noqa: E731
        with Stranger(point) as first, guard_httpx("x"):
            pass
        with Stranger(point) as first:
            assert httpx.get(first.url, follow_redirects=True).text == "there"


# -- size


@cache
def bomb(megabytes: int, coding: str = "gzip", times: int = 1) -> bytes:
    """Return so many megabytes of blanks, compressed."""
    packed = b""
    for number in range(times):
        squeeze = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
        pieces = [b" " * (1 << 20)] * megabytes if number == 0 else [packed]
        packed = b"".join([squeeze.compress(piece) for piece in pieces]) + squeeze.flush()
    return packed


@pytest.mark.parametrize(("route", "status"), by_turns(SOME, [200, 400, 500]), **ids)
def test_a_compressed_flood_stops_at_the_limit(route: Route, status: int) -> None:
    """512 MiB that arrive as 0.5: before, all of them lay in memory, some several times."""
    load_litellm()
    flood = body(bomb(512), headers={"Content-Encoding": "gzip"}, status=status)
    tracemalloc.start()
    try:
        error = refused(route, flood)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    if status == 200:
        assert "longer than 8 MiB" in str(error)
        assert isinstance(error, FatalModelError)
        assert not error.stops_run


@pytest.mark.parametrize("route", SOME[:2], **ids)
@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress", "x" * 900])
def test_a_compression_that_was_not_asked_for_is_refused(route: Route, coding: str) -> None:
    """Nested or denser ones reach a thousand times more."""
    asked: list[Asked] = []

    def answer(_request: web.BaseRequest, found: Asked) -> web.Response:
        asked.append(found)
        return web.Response(body=b"anything", headers={"Content-Encoding": coding})

    assert "compressed as" in str(refused(route, answer))
    assert asked[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("route", SOME[:2], **ids)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw", "members", "plain"])
def test_orderly_compression_is_read(route: Route, coding: str) -> None:
    plain = json.dumps(whole(route)).encode()
    raw = zlib.compressobj(wbits=-15)
    data, name = {
        "gzip": (gzip.compress(plain), "gzip"),
        "deflate": (zlib.compress(plain), "deflate"),
        "raw": (raw.compress(plain) + raw.flush(), "deflate"),
        "members": (gzip.compress(plain[:9]) + gzip.compress(plain[9:]), "gzip"),
        "plain": (plain, "identity"),
    }[coding]
    reply = answered(route, body(data, headers={"Content-Encoding": name}))
    assert reply.content == "fine words"


@pytest.mark.parametrize("route", SOME[:2], **ids)
def test_a_body_without_end_stops_at_the_limit(route: Route) -> None:
    sent = 0

    async def flood(request: web.BaseRequest, _asked: Asked) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * (1 << 20))
            sent += 1

    assert "longer than 8 MiB" in str(refused(route, flood))
    assert sent < 64


@pytest.mark.parametrize("route", SOME[:2], **ids)
def test_a_body_that_drips_ends_with_the_attempt(route: Route) -> None:
    """Every byte in time, no end: the deadline is of the whole attempt."""

    async def drip(request: web.BaseRequest, _asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    load_litellm()
    late = pytest.raises(TransientModelError, match=r"no reply within 0\.3 s")
    with Stranger(drip) as server, late:
        through_engine(route, server.url, RetryPolicy(timeout_s=0.3, tries=1))


def test_a_slow_body_has_a_deadline_of_its_own() -> None:
    slow = BoundedBody(None, seconds=-1)
    with pytest.raises(BadBody, match="not complete"):
        slow.feed(b" ")


@pytest.mark.parametrize("route", SOME[:3], **ids)
def test_countless_headers_break_the_reply_only(route: Route) -> None:
    many = {f"X-{number}": "v" * 900 for number in range(3000)}
    error = refused(route, lambda *_: web.json_response(whole(route), headers=many))
    assert isinstance(error, TransientModelError)


def test_bodies_at_the_limit_are_whole() -> None:
    exact = BoundedBody(None, 8)
    exact.feed(b"1234")
    exact.feed(b"5678")
    assert exact.collected_bytes() == b"12345678"
    with pytest.raises(BadBody):
        exact.feed(b"9")
    assert exact.collected_bytes() == b"12345678"
    assert ERROR_BYTES < REPLY_BYTES


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


@pytest.mark.parametrize(("route", "kind"), by_turns(SOME, [*LONG]), **ids)
def test_long_errors_are_cut_and_pages_not_repeated(route: Route, kind: str) -> None:
    """Each `<` looked for its `>` up to the end: the time grew with the square of the length."""
    error = refused(route, body(LONG[kind], status=502))
    assert isinstance(error, TransientModelError)
    assert str(error).isprintable()
    assert "<p>" not in str(error)
    if kind == "a page" and route is OWN:
        assert "502 Bad Gateway" in str(error)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Fri, 31 Dec 99999 23:59:59 GMT", LONGEST_WAIT_S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT_S),
        ("Wed, 01 Jan 1000 00:00:00 GMT", 0.0),
        ("1e400", LONGEST_WAIT_S),
        ("9" * 5000, LONGEST_WAIT_S),
        ("-5", 0.0),
        ("-inf", 0.0),
        ("inf", LONGEST_WAIT_S),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("7", 7.0),
        ("2.5", 2.5),
    ],
)
def test_retry_after_lies_within_limits(value: str, expected: float | None) -> None:
    assert retry_after({"retry-after": value}) == expected


@pytest.mark.parametrize("value", ["nan", "1e999", "-1", "x", "99999999999999999999"])
def test_retry_after_in_milliseconds_too(value: str) -> None:
    found = retry_after({"retry-after-ms": value})
    assert found is None or 0 <= found <= LONGEST_WAIT_S


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize("value", ["Fri, 31 Dec 99999 23:59:59 GMT", "9" * 900, "nan"])
def test_a_far_retry_after_comes_through_every_route(route: Route, value: str) -> None:
    error = refused(
        route, body(b'{"error": {"message": "slow"}}', status=429, headers={"Retry-After": value})
    )
    assert isinstance(error, TransientModelError)
    assert error.rate_limited
    assert error.retry_after is None or 0 <= error.retry_after <= LONGEST_WAIT_S


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


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize("kind", ["twice", "NaN", "latin", "html type", "no type", "charset"])
def test_odd_json_is_read_the_same_on_every_route(route: Route, kind: str) -> None:
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


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize("kind", COUNTS)
def test_usage_is_whole_numbers_or_unknown(route: Route, kind: str) -> None:
    """What is no count is unknown, never 0: unknown spending is estimated, 0 is free."""
    given, expected = COUNTS[kind]
    names = PARTS.get(route.dialect, ("prompt_tokens", "completion_tokens"))
    raw = json.dumps(whole(route, usage=dict.fromkeys(names, given)))
    reply = answered(route, body(raw))
    assert reply.content == "fine words"
    assert (reply.prompt_tokens, reply.completion_tokens) == (expected, expected)
    for value in (reply.prompt_tokens, reply.completion_tokens):
        assert value is None or type(value) is int
    if expected is None:
        assert reply.cost_usd is None


@pytest.mark.parametrize("route", SOME, **ids)
@pytest.mark.parametrize("usage", ["none", 7, [1], True, [{"prompt_tokens": 5}]], ids=str)
def test_a_usage_that_is_none_is_unknown(route: Route, usage: Any) -> None:
    reply = answered(route, body(json.dumps(whole(route, usage=usage))))
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)
    assert reply.cost_usd is None


@pytest.mark.parametrize("cost", [float("nan"), -1, "free", True, [0], float("inf")], ids=str)
def test_a_cost_that_is_none_is_unknown(cost: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": cost}
    assert answered(OWN, body(json.dumps(whole(OWN, usage=usage)))).cost_usd is None


def test_what_came_but_cannot_be_read_keeps_its_counts() -> None:
    """A reply was sent and is billed, whatever it says."""
    route = SOME[1]
    answer = {**whole(route), "content": 7}
    error = refused(route, body(json.dumps(answer)))
    assert isinstance(error, BrokenReply)
    assert error.usage == Usage(12, 2, pytest.approx(2.2e-05))


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


def test_an_error_message_is_one_printable_line() -> None:
    assert (
        error_message(b'{"error": {"message": "a\\nb\\u0007", "code": {"x": 1}}}')
        == "a b? ({'x': 1})"
    )


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
            caller = Caller(kept, retry=policy)
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
