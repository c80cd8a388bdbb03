"""Providers that go through litellm, against a server that speaks Anthropic's API."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from convbench.errors import FatalModelError, ModelError, TransientModelError, Unreachable
from convbench.models import open_model
from convbench.schema import Completion, Message, Sampling
from tests.helpers.refused import REFUSALS, Refusing
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

HELLO: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hello there"},
]
KEY = "sk-ant-very-secret-0123456789abcdef"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def ask(
    plan: Plan, ref: str = "anthropic/claude-haiku-4-5", **more: Any
) -> tuple[Completion, list[dict[str, Any]]]:
    """Return the reply and the requests that were sent."""
    with Provider(plan.changed({"keep_requests": 9})) as provider:

        async def main() -> Completion:
            model = open_model(ref, api_base=provider.url, note=more.pop("note", print))
            try:
                sampling = Sampling(temperature=0.3, max_tokens=9, **more)
                return await model.complete(HELLO, sampling, key="k")
            finally:
                await model.aclose()

        return asyncio.run(main()), list(provider.requests)


def refusal(plan: Plan) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(plan)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    return caught.value


def test_a_reply_with_its_usage_and_price() -> None:
    reply, requests = ask(Plan())
    assert reply.finish_reason == "length"
    assert (reply.prompt_tokens, reply.completion_tokens) == (12, 9)
    assert reply.cost_usd == pytest.approx(12 * 1e-6 + 9 * 5e-6)
    assert (requests[0]["temperature"], requests[0]["max_tokens"]) == (0.3, 9)


def test_a_model_that_takes_no_temperature_gets_none_and_it_is_noted() -> None:
    notes: list[str] = []
    _, requests = ask(Plan(), "claude-opus", note=notes.append)
    assert "temperature" not in requests[0]
    assert notes == ["note: anthropic/claude-opus-5-5 does not support temperature; it is not sent"]
    assert requests[0]["max_tokens"] == 9 + 8192


def test_what_litellm_itself_refuses_is_dropped() -> None:
    notes: list[str] = []
    _, requests = ask(Plan(), seed=4, note=notes.append)
    assert len(requests) == 1
    assert notes == ["note: anthropic/claude-haiku-4-5 does not support seed; it is not sent"]


def test_a_wrong_key_names_its_variable_and_not_its_value() -> None:
    error = refusal(Plan(api_keys=("other",)))
    assert isinstance(error, FatalModelError)
    assert error.stops_run
    assert "ANTHROPIC_API_KEY" in str(error)


def test_a_missing_key_is_said_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    model = open_model("claude-sonnet")
    with pytest.raises(FatalModelError, match="set the environment variable ANTHROPIC_API_KEY"):
        asyncio.run(model.start())


def test_an_address_of_the_environment_needs_a_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_BASE", "http://127.0.0.1:9/v1")
    with pytest.raises(FatalModelError, match="set the environment variable ANTHROPIC_API_KEY"):
        open_model("claude-sonnet").check()


def test_an_unknown_model_stops_the_run() -> None:
    error = refusal(Plan(models=("other",)))
    assert isinstance(error, FatalModelError)
    assert error.stops_run


def test_too_long_a_context_stops_only_the_conversation() -> None:
    error = refusal(Plan(context_tokens=3))
    assert isinstance(error, FatalModelError)
    assert not error.stops_run


@pytest.mark.parametrize("fault", ["429_retry_after", "500", "503", "reset", "truncated", "empty"])
def test_trouble_is_worth_another_try(fault: str) -> None:
    error = refusal(Plan(faults={fault: 1}, retry_after=7))
    assert isinstance(error, TransientModelError)
    assert error.rate_limited == (fault == "429_retry_after")
    if error.rate_limited:
        assert error.retry_after == 7


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/messages"])
@pytest.mark.parametrize("variable", [None, "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"])
def test_an_address_of_anthropic_says_as_much_of_its_path_as_it_likes(
    path: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider(Plan()) as provider:
        base: str | None = provider.url + path
        if variable is not None and base is not None:
            monkeypatch.setenv(variable, base)
            base = None

        async def main() -> Completion:
            model = open_model("claude-haiku", api_base=base)
            try:
                return await model.complete(HELLO, Sampling(max_tokens=9), key="k")
            finally:
                await model.aclose()

        assert asyncio.run(main()).completion_tokens == 9


def test_nobody_listening() -> None:
    async def main() -> None:
        model = open_model("claude-haiku", api_base="http://127.0.0.1:9")
        await model.complete(HELLO, Sampling(), key="k")

    with pytest.raises(Unreachable, match="cannot connect"):
        asyncio.run(main())


def test_litellm_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys; from convbench.models import open_model;"
        "open_model('claude-opus'); sys.exit('litellm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cells_that_load_litellm_at_once_load_it() -> None:
    code = (
        "import threading\n"
        "from convbench.models.litellm_model import load_litellm\n"
        "failed = []\n"
        "def load():\n"
        "    try:\n"
        "        load_litellm()\n"
        "    except BaseException as error:\n"
        "        failed.append(error)\n"
        "threads = [threading.Thread(target=load) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "raise SystemExit(bool(failed))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0


def test_closing_one_model_leaves_the_calls_of_others_alone() -> None:
    """Eight calls in flight in each of two event loops, as the cells of an experiment are."""
    said: list[object] = []

    async def ask_eight(base: str) -> None:
        model = open_model("anthropic/claude-haiku-4-5", api_base=base)
        await model.start()
        calls = (model.complete(HELLO, Sampling(max_tokens=9), key=str(n)) for n in range(8))
        said.extend(await asyncio.gather(*calls, return_exceptions=True))
        await model.aclose()

    async def begin_and_end(base: str) -> None:
        model = open_model("anthropic/claude-haiku-4-5", api_base=base)
        await model.start()
        while provider.stats.in_flight < 8:
            await asyncio.sleep(0.01)
        await model.aclose()

    with Provider(Plan(latency_s=1.5)) as provider:
        thread = threading.Thread(target=lambda: asyncio.run(ask_eight(provider.url)))
        thread.start()
        asyncio.run(begin_and_end(provider.url))
        asyncio.run(ask_eight(provider.url))
        thread.join()
        assert provider.stats.calls == 16
    assert [type(one) for one in said] == [Completion] * 16


THROUGH = {
    "Anthropic": "anthropic/claude-haiku-4-5", "Google": "gemini/gemini-2.5-flash",
    "xAI": "xai/grok-3", "DeepSeek": "deepseek/deepseek-chat", "Qwen": "dashscope/qwen-max",
    "Moonshot": "moonshot/kimi-k2", "Zhipu": "zai/glm-4.6", "Mistral": "mistral/mistral-large",
    "Groq": "groq/llama", "Together": "together_ai/llama", "OpenRouter": "openrouter/x/y",
}  # fmt: skip
KEYS = (
    "GEMINI", "XAI", "DEEPSEEK", "DASHSCOPE", "MOONSHOT", "ZAI", "MISTRAL", "GROQ", "TOGETHERAI",
    "OPENROUTER",
)  # fmt: skip


def test_complete_raises_what_each_providers_refusal_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm gives them classes, statuses and words of its own; its errors keep the provider's."""
    for name in KEYS:
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    rows = [row for row in REFUSALS if row[0].partition(":")[0] in THROUGH]
    row = rows[0]

    async def ask_all(url: str) -> None:
        nonlocal row
        for row in rows:
            model = open_model(THROUGH[row[0].partition(":")[0]], api_base=url, note=lambda _: None)
            with pytest.raises(ModelError) as caught:
                await model.complete(HELLO[1:], Sampling(max_tokens=9), key="k")
            error, meaning = caught.value, row[4]
            assert isinstance(error, TransientModelError) == (meaning == "wait"), row
            stops = isinstance(error, FatalModelError) and error.stops_run
            assert stops == (meaning == "stop"), row

    with Refusing(lambda _: row[1:4]) as server:
        asyncio.run(ask_all(server.url))
    assert len(rows) > 80
