"""What providers' errors mean, by their own words."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from convbench.errors import FatalModelError, TransientModelError
from convbench.models.refusals import error_message, refused_parameter, reply_error, retry_after


def seen(status: int, body: bytes, **more: bool) -> Exception:
    return reply_error("m", status, error_message(body), {}, key_variable="M_API_KEY", **more)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"This model\'s maximum context length is 8192 tokens."}}',
        b'{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}',
        b'{"object":"error","message":"The decoder prompt (length 900) is longer than the maximum'
        b' model length of 512"}',
        b'{"error":{"message":"x","code":"context_length_exceeded"}}',
    ],
)
def test_too_long(body: bytes) -> None:
    error = seen(400, body)
    assert isinstance(error, FatalModelError)
    assert not error.stops_run


def test_no_money_is_not_a_rate_limit() -> None:
    body = b'{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}'
    assert isinstance(seen(429, body), FatalModelError)
    assert isinstance(seen(429, b'{"error":{"message":"slow down"}}'), TransientModelError)


def test_an_unexplained_refusal_stops_the_run_only_before_the_first_answer() -> None:
    first, later = seen(400, b"{}"), seen(400, b"{}", answered=True)
    assert isinstance(first, FatalModelError)
    assert isinstance(later, FatalModelError)
    assert (first.stops_run, later.stops_run) == (True, False)


def test_keys_in_error_bodies_are_blotted_out() -> None:
    body = b'{"error":{"message":"Incorrect API key provided: sk-proj-abcDEF1234567890xyz."}}'
    assert "abcDEF" not in error_message(body)
    assert "abcDEF" not in str(seen(401, body))


def test_an_html_body_becomes_a_line_of_text() -> None:
    assert error_message(b"<html><body>\n<h1>Bad   Gateway</h1></body></html>") == "Bad Gateway"
    assert len(error_message(b"x" * 9000)) == 300


def test_which_refusals_name_a_parameter() -> None:
    assert refused_parameter(400, "`temperature` is deprecated for this model.")
    assert refused_parameter(400, "Unsupported value: 'temperature' does not support 0.3")
    assert refused_parameter(422, "seed: Extra inputs are not permitted")
    assert not refused_parameter(500, "Unsupported value: 'temperature'")
    assert not refused_parameter(400, "temperature: must be a number")


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"Retry-After": "2.5"}) == 2.5
    assert retry_after({"retry-after-ms": "250", "Retry-After": "9"}) == 0.25
    date = formatdate(time.time() + 100, usegmt=True)
    assert 60 < (retry_after({"Retry-After": date}) or 0) <= 100
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None
