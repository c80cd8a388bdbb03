"""One call of a model at a provider of our own."""

from __future__ import annotations

import asyncio
from typing import Any

from convbench.models import open_model
from convbench.schema import Completion, Message, Sampling
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

HELLO: list[Message] = [{"role": "user", "content": "hello there"}]


def ask(
    plan: Plan,
    messages: list[Message] = HELLO,
    sampling: Sampling | None = None,
    *,
    times: int = 1,
    **more: Any,
) -> tuple[Completion, list[dict[str, Any]]]:
    """Return the last reply and the requests that were sent."""
    with Provider(plan.changed({"keep_requests": 9})) as provider:

        async def main() -> Completion:
            model = open_model("openai/gpt-test", api_base=provider.api_base, **more)
            try:
                for _ in range(times):
                    reply = await model.complete(messages, sampling or Sampling(), key="k")
                return reply
            finally:
                await model.aclose()

        return asyncio.run(main()), list(provider.requests)
