"""OpenAI-compatible endpoints: what each kind of refusal becomes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import BrokenReply, FatalModelError, ModelError, TransientModelError, Usage
from convbench.models import open_model
from convbench.schema import ImagePart, Message, Sampling, TextPart
from convbench.views import without_system
from tests.helpers.completions import HELLO, ask
from tests.support.chat.plan import Plan

KEY = "sk-very-secret-0123456789abcdef"


def refusal(plan: Plan, messages: list[Message] = HELLO, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(plan, messages, **more)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    return caught.value


def test_a_reply_with_its_usage_and_unknown_price() -> None:
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=7, seed=5)
    reply, requests = ask(Plan(), sampling=sampling)
    assert reply.finish_reason == "length"
    assert reply.completion_tokens == 7
    assert reply.cost_usd is None
    assert requests == [
        {
            "model": "gpt-test",
            "messages": HELLO,
            "temperature": 0.3,
            "top_p": 0.9,
            "max_tokens": 7,
            "seed": 5,
        }
    ]


def test_an_image_is_sent_as_a_data_uri(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    parts = (TextPart(text="look"), ImagePart(file="a.png"))
    _, requests = ask(Plan(), [{"role": "user", "content": parts}], media=tmp_path)
    url = {"url": "data:image/png;base64,iVBORw=="}
    assert requests[0]["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": url},
    ]


def test_a_missing_image_is_this_conversations_failure(tmp_path: Path) -> None:
    parts = (ImagePart(file="none.png"),)
    error = refusal(Plan(), [{"role": "user", "content": parts}], media=tmp_path)
    assert isinstance(error, FatalModelError)
    assert not error.stops_run


def test_a_wrong_key_names_its_variable_and_not_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    error = refusal(Plan(api_keys=("other",)))
    assert isinstance(error, FatalModelError)
    assert error.stops_run
    assert "OPENAI_API_KEY" in str(error)


def test_a_missing_key_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FatalModelError, match="set the environment variable OPENAI_API_KEY"):
        open_model("openai/gpt-4o-mini")


def test_an_unknown_model_stops_the_run() -> None:
    error = refusal(Plan(models=("other",)))
    assert isinstance(error, FatalModelError)
    assert error.stops_run
    assert "is the model's name right" in str(error)


def test_too_long_a_context_stops_only_the_conversation() -> None:
    error = refusal(Plan(context_tokens=100))
    assert isinstance(error, FatalModelError)
    assert not error.stops_run
    assert "longer than the model's context" in str(error)


@pytest.mark.parametrize("kind", ["unsupported_parameter", "unsupported_value"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "seed", "tool_choice"])
def test_a_refused_sampling_parameter_is_dropped_and_noted_once(name: str, kind: str) -> None:
    notes: list[str] = []
    sampling = Sampling(temperature=0.3, top_p=0.5, seed=3, tool_choice="none")
    _, requests = ask(Plan(refuse={name: kind}), sampling=sampling, times=3, note=notes.append)
    assert [name in request for request in requests] == [True, False, False, False]
    assert notes == [f"note: openai/gpt-test does not support {name}; it is not sent"]


def test_all_refused_at_once_are_dropped_one_by_one() -> None:
    refuse = dict.fromkeys(("temperature", "top_p", "seed"), "unsupported_parameter")
    sampling = Sampling(temperature=0.3, top_p=0.5, seed=3)
    _, requests = ask(Plan(refuse=refuse), sampling=sampling, note=lambda _: None)
    assert len(requests) == 4


@pytest.mark.parametrize(
    "said",
    [
        "System role not supported",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "Conversation roles must alternate user/assistant/user/assistant/...",
    ],
)
def test_a_refused_system_message_goes_into_the_first_user_message(said: str) -> None:
    """As training renders it for such a template; noted once, also with calls side by side."""
    chat: list[Message] = [{"role": "system", "content": "Be brief."}, *HELLO]
    notes: list[str] = []
    _, requests = ask(Plan(refuse_system=said), chat, times=2, note=notes.append)
    folded = [{"role": "user", "content": "Be brief.\n\nhello there"}]
    assert [request["messages"] for request in requests] == [chat, folded, folded]
    assert without_system(chat) == folded
    assert notes == [
        "note: openai/gpt-test does not support system messages; the system prompt is put into the "
        "first user message"
    ]
    plain = refusal(Plan(poison={"hello": "500"}), chat)
    assert isinstance(plain, TransientModelError), "no other error is taken for it"


def test_max_tokens_gives_way_to_its_newer_name() -> None:
    _, requests = ask(Plan(refuse={"max_tokens": "unsupported_parameter"}))
    assert "max_completion_tokens" in requests[-1]
    assert "max_tokens" not in requests[-1]


def test_another_refused_field_is_fatal() -> None:
    error = refusal(Plan(refuse={"messages": "unsupported_parameter"}))
    assert isinstance(error, FatalModelError)
    assert "'messages' is not supported" in str(error)


@pytest.mark.parametrize("fault", ["reset", "truncated", "partial", "empty", "null"])
def test_a_broken_reply_is_worth_another_try(fault: str) -> None:
    assert isinstance(refusal(Plan(faults={fault: 1})), BrokenReply)


@pytest.mark.parametrize("fault", ["500", "502", "503", "429", "429_retry_after"])
def test_overload_is_worth_another_try(fault: str) -> None:
    error = refusal(Plan(faults={fault: 1}, retry_after=7))
    assert isinstance(error, TransientModelError)
    assert error.rate_limited == fault.startswith("429")
    assert error.retry_after == (7 if fault == "429_retry_after" else None)
    assert "<" not in str(error)


def test_an_empty_reply_tells_what_it_used() -> None:
    error = refusal(Plan(faults={"empty": 1}))
    assert isinstance(error, BrokenReply)
    assert error.usage == Usage(6, 0)


def test_a_bad_address_is_fatal() -> None:
    async def main() -> None:
        await open_model("openai/x", api_base="not a url").complete(HELLO, Sampling(), key="k")

    with pytest.raises(FatalModelError, match="--api-base"):
        asyncio.run(main())
