"""Client of all other providers through litellm: loaded at the first call, quiet, no retries."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from typing import Any

from convbench.errors import BrokenReply, FatalModelError, ModelError, Unreachable
from convbench.models.openai import ServedModel
from convbench.models.prices import Price
from convbench.schema import Completion
from convbench.util.hub import error_chain
from convbench.util.redact import redact_error
from convbench.util.untrusted import loads

_LOADING = threading.Lock()
_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env in any folder above
}
"""Environment variables by which litellm fetches, reports and prints nothing of its own."""
_CONVERSATION = ("ContextWindowExceededError", "ContentPolicyViolationError")
_LOST = ("Timeout", "APIConnectionError", "APIResponseValidationError")
"""Classes of its errors after which the provider may have answered."""


def load_litellm() -> Any:
    """Return the module litellm, imported once, set to fetch, report and print nothing itself."""
    with _LOADING:
        os.environ.update({**_QUIET, **os.environ})
        import litellm

        litellm.telemetry = litellm.drop_params = False
        litellm.suppress_debug_info = True
    return litellm


class LitellmModel(ServedModel):
    """One model of one provider, `provider/name` as litellm writes it."""

    starts = True
    needs_key = True  # but not at an address that the user typed

    def __init__(self, ref: str, *served: Any) -> None:
        """`served` are the other arguments of a ServedModel."""
        super().__init__(ref, *served)
        self.litellm: Any = None
        provider, _, name = ref.partition("/")
        self.quota_is_a_rate = provider == "dashscope"
        clouds = ("bedrock", "vertex_ai")
        self.marks = provider == "anthropic" or (provider in clouds and "claude" in name)

    def check(self) -> None:
        """Load litellm; raise FatalModelError if it knows no such provider or there is no key."""
        self.litellm = load_litellm()
        try:
            self.litellm.get_llm_provider(self.ref, api_base=self.url)
        except self.litellm.exceptions.BadRequestError:
            raise FatalModelError(
                f"{self.ref}: found no provider {self.ref.partition('/')[0]!r}; expected "
                "PROVIDER/NAME, or --api-base URL with the name that a server gives it"
            ) from None
        environment = self.litellm.validate_environment(self.ref)
        missing = [str(name) for name in environment.get("missing_keys", ())]
        self.key_variable = " or ".join(missing) or self.key_variable
        if missing and not environment.get("keys_in_environment") and self.needs_key:
            names = ", ".join(missing)
            raise FatalModelError(f"{self.ref}: no key; set the environment variable {names}")

    async def start(self) -> None:
        """Check provider and key as `check` does, once."""
        if self.litellm is None:
            self.check()

    async def send(self, fields: dict[str, Any]) -> Completion:
        """Return the reply to one request. Raises ModelError, also for what litellm refuses."""
        await self.start()
        more: dict[str, Any] = {}
        if self.parameters.extra_body:
            more["extra_body"] = self.parameters.extra_body
        if "tools" in fields:
            # else litellm imports `mcp`, which is not needed; there is no public option for it
            more["_skip_mcp_handler"] = True
        try:
            reply = await self.litellm.acompletion(
                self.ref, api_base=self.url, num_retries=0, max_retries=0, **fields, **more
            )
        except Exception as error:
            # litellm raises its own classes, openai's, httpx's and plain ValueErrors
            raise self.error_of(error) from error
        return self.read_reply(reply)

    def read_reply(self, reply: Any, price: Price | None = None) -> Completion:
        """Return the completion in litellm's reply, which has the form of OpenAI's."""
        body = json.dumps(reply.model_dump(), default=str).encode()
        return self.completion_of(loads(body), price)

    def error_of(self, error: Exception) -> ModelError:
        """Return the model error for an error of litellm: by the provider's response, which the
        errors behind it keep, else by its words."""
        if isinstance(error, ModelError):
            return error
        text, kind = str(error).removeprefix("litellm."), type(error).__name__
        text = text.split("Traceback (most recent")[0].split(" Handle with ")[0].strip()
        status, body, headers = getattr(error, "status_code", None) or 500, text, {}
        for cause in error_chain(error):
            response: Any = getattr(cause, "response", None)
            with suppress(Exception):  # httpx: a body that was not read
                if response.status_code >= 400 and response.content:
                    status, body, headers = response.status_code, response.content, response.headers
                    break
        refusal, words = self.refusal(status, body, headers), redact_error(text)[:300]
        if "Cannot connect to host" in text or "Name or service not known" in text:
            return Unreachable(f"{self.ref}: cannot connect: {words}")
        if kind in _LOST:
            return BrokenReply(f"{self.ref}: connection lost or reply unreadable ({words})")
        if kind in _CONVERSATION:
            return FatalModelError(str(refusal), stops_run=False)
        return refusal

    async def aclose(self) -> None:
        """Close the connections of its batches; those of litellm are shared and end with us."""
        if self.batches is not None:
            await self.batches.aclose()
