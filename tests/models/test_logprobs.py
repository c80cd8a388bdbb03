"""Log-probabilities as servers tell them, and as servers should not."""

from __future__ import annotations

from typing import Any

import pytest

from convbench.models.refusals import Parameters
from convbench.models.replies import token_probs
from convbench.schema import Sampling
from convbench.schema.chat import TokenProbs
from tests.helpers.completions import ask
from tests.support.chat.plan import Plan


def told(*items: dict[str, Any]) -> TokenProbs | None:
    """Read a choice's logprobs."""
    return token_probs({"content": list(items)})


def one(token: Any = "a", logprob: Any = -1.0, raw: Any = None) -> dict[str, Any]:
    """One token as a server tells it."""
    return {"token": token, "logprob": logprob, "bytes": raw, "top_logprobs": []}


def test_tokens_are_read_by_their_bytes_or_their_ids() -> None:
    assert told(one(raw=[97, 98]), one("\u00e9", -2)) == TokenProbs((-1.0, -2.0), sizes=(2, 2))
    assert told(one("token_id:12"), one("token_id:7", -0.5)) == TokenProbs(
        (-1.0, -0.5), ids=(12, 7)
    )
    assert told(one(logprob=1e-7)) == TokenProbs((0.0,), sizes=(1,)), "rounding above 0"


@pytest.mark.parametrize(
    "found",
    [
        None, [], "x", {"content": None}, {"content": []}, {"content": "abc"},
        {"content": [one(logprob=float("nan"))]}, {"content": [one(logprob=float("inf"))]},
        {"content": [one(logprob=0.5)]}, {"content": [one(logprob="-1")]},
        {"content": [one(logprob=True)]}, {"content": [one(logprob=None)]},
        {"content": [one(logprob=-(10**400))]}, {"content": [one(token=3)]}, {"content": [3]},
        {"content": [one("token_id:x")]}, {"content": [one("token_id:-3")]},
        {"content": [one("token_id:99999999999999")]}, {"content": [one(logprob=float("-inf"))]},
    ],
)  # fmt: skip
def test_what_does_not_hold_is_as_if_nobody_had_told_it(found: Any) -> None:
    assert token_probs(found) is None


def test_a_server_is_asked_and_its_numbers_are_read() -> None:
    reply, requests = ask(Plan(), sampling=Sampling(max_tokens=9, logprobs=True))
    assert requests[0]["logprobs"] is True
    assert reply.token_probs is not None
    said = str(reply.content)
    assert reply.token_probs.sizes == tuple(len(letter.encode()) for letter in said)
    assert reply.token_probs.log_probs[:2] == (-0.5, -1.5)
    reply, requests = ask(Plan(), sampling=Sampling(max_tokens=9))
    assert ("logprobs" in requests[0], reply.token_probs) == (False, None), "not where not asked"


def test_vllm_is_asked_for_token_ids() -> None:
    asked = Parameters("vllm:x", token_ids=True).request_fields(Sampling(logprobs=True))
    assert (asked["logprobs"], asked["return_tokens_as_token_ids"]) == (True, True)
    assert "return_tokens_as_token_ids" not in Parameters("x").request_fields(
        Sampling(logprobs=True)
    )
    assert "logprobs" not in Parameters("vllm:x", token_ids=True).request_fields(Sampling())


def test_a_server_that_takes_none_is_asked_without(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(refuse={"logprobs": "unsupported_parameter"})
    reply, _ = ask(plan, sampling=Sampling(max_tokens=9, logprobs=True))
    assert reply.token_probs is None
    assert reply.left_out == ("logprobs",)
    assert "does not support logprobs; it is not sent" in capsys.readouterr().err
