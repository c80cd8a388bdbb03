"""A batch asks what a call asks, reads what a call reads, and goes where a call goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import FatalModelError, TransientModelError
from convbench.models import open_model, prices
from convbench.models.batch import BatchState
from convbench.schema import Completion, Message, Sampling
from tests.support.batches import BatchProvider
from tests.support.one_line import one_line
from tests.support.provider import Provider

OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-haiku-4-5"
OPUS = "anthropic/claude-opus-5-5"
SAID: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Sure?"},
]
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"overall": {"type": "number", "minimum": 0, "maximum": 10}},
    "required": ["overall"], "additionalProperties": False,
}  # fmt: skip
SAMPLING = Sampling(temperature=0.3, top_p=0.9, max_tokens=50, seed=7, reply_schema=SCHEMA)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchProvider]:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")
    with BatchProvider() as server:
        server.change(keep_requests=9)
        yield server


def opened(provider: Provider, ref: str) -> Any:
    base = provider.url if ref.startswith("anthropic/") else f"{provider.url}/v1"
    model = open_model(ref, api_base=base, note=lambda line: None)
    asyncio.run(model.start())
    return model


@pytest.mark.parametrize("ref", [OPENAI, ANTHROPIC, OPUS])
def test_a_request_in_a_batch_is_that_of_a_call(provider: BatchProvider, ref: str) -> None:
    model = opened(provider, ref)

    async def both() -> tuple[Completion, dict[str, Any]]:
        called = await model.complete(SAID, SAMPLING, key="k")
        line = json.loads(model.batches.request_line("m-0", SAID, SAMPLING))
        await model.aclose()
        return called, line

    called, line = asyncio.run(both())
    assert line["custom_id"] == "m-0"
    assert line.get("params", line.get("body")) == provider.requests[-1]
    assert model.batches.unsent_parameters(SAMPLING) == called.left_out


@pytest.mark.parametrize("ref", [OPENAI, ANTHROPIC, OPUS])
def test_a_reply_in_a_batch_is_that_of_a_call_at_half_the_price(
    provider: BatchProvider, ref: str
) -> None:
    model = opened(provider, ref)

    async def both() -> tuple[Completion, list[Any]]:
        called = await model.complete(SAID, SAMPLING, key="k")
        batches = model.batches
        lines = [batches.request_line("m-0", SAID, SAMPLING)]
        name = await batches.create_batch("m", await batches.upload_requests("m", lines), lines)
        assert await batches.find_batches("m", None, 0.0, 1) == [name]
        state = BatchState("", False)
        while not state.ended:
            state = await batches.get_state(name)
        found = [item async for item in batches.iter_results(name, state, 1 << 20)]
        await model.aclose()
        return called, found

    called, ((name, reply),) = asyncio.run(both())
    assert name == "m-0"
    assert (reply.content, reply.finish_reason) == (called.content, called.finish_reason)
    assert reply.prompt_tokens == called.prompt_tokens
    assert reply.cost_usd == pytest.approx(called.cost_usd / 2)


@pytest.mark.parametrize("how", ["tool", "json_schema"])
def test_what_litellm_refuses_by_itself_is_left_out_of_a_batch(
    provider: BatchProvider, how: str, tmp_path: Path
) -> None:
    (tmp_path / "models.yaml").write_text(
        f"models: {{j: {{ref: anthropic/claude-opus-5-5-20260901, structured: {how}}}}}\n"
    )
    model = open_model("j", api_base=provider.url, specs=[tmp_path], note=lambda line: None)
    asyncio.run(model.start())
    assert model.batches is not None
    said = json.loads(model.batches.request_line("m-0", SAID, SAMPLING))["params"]
    assert set(said) - {"output_format"} == {"model", "messages", "system", "max_tokens"}
    assert ("output_format" in said) == (how == "json_schema")
    asyncio.run(model.aclose())


def test_the_price_lists_own_figures_go_before_half() -> None:
    listed = prices.list_price(ANTHROPIC)
    assert listed is not None
    entry = prices.list_entry(ANTHROPIC)
    batch = prices.batch_price(ANTHROPIC, listed)
    assert batch.input == entry["input_cost_per_token_batches"]
    assert batch.cached == entry["cache_read_input_token_cost_batches"]
    mine = prices.Price(2.0, 4.0, 1.0)
    assert prices.batch_price(ANTHROPIC, mine) == prices.Price(1.0, 2.0, 0.5)


def test_a_server_without_batches_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with Provider() as plain:
        for ref in ("hosted_vllm/mine", ANTHROPIC):
            model = opened(plain, ref)

            async def send(model: Any = model) -> None:
                lines = [model.batches.request_line("m-0", SAID, SAMPLING)]
                try:
                    await model.batches.create_batch(
                        "m", await model.batches.upload_requests("m", lines), lines
                    )
                finally:
                    await model.aclose()

            with pytest.raises(FatalModelError, match="leave --batch out") as told:
                asyncio.run(send())
            one_line(told.value)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a?b", "x" * 129, "é", "a\n", "a b", None, 7])
def test_a_name_that_is_none_becomes_no_address(provider: BatchProvider, name: Any) -> None:
    batches = opened(provider, OPENAI).batches
    with pytest.raises(TransientModelError, match="as the name of a batch"):
        batches.check_name(name)


def test_images_go_as_a_call_sends_them(provider: BatchProvider, tmp_path: Path) -> None:
    from convbench.schema import ImagePart, TextPart

    (tmp_path / "one.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    shown: list[Message] = [
        {"role": "user", "content": (
            TextPart(text="see"), ImagePart(file="one.png", media_type="image/png"),
        )}
    ]  # fmt: skip
    for ref in (OPENAI, ANTHROPIC):
        base = provider.url if ref == ANTHROPIC else provider.api_base
        model = open_model(ref, api_base=base, media=tmp_path, note=lambda line: None)
        asyncio.run(model.start())
        assert model.batches is not None
        line = model.batches.request_line("m-0", shown, SAMPLING)
        assert b"iVBORw0KGgo=" in line
