"""Client of all other providers through litellm: loaded at the first call, quiet, no retries."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from convbench.errors import (
    BrokenReply,
    FatalModelError,
    MissingDependency,
    ModelError,
    Unreachable,
)
from convbench.models.openai import ServedModel
from convbench.models.parameters import Parameters
from convbench.models.prices import Price
from convbench.schema import Completion
from convbench.util.hub import error_chain
from convbench.util.redact import redact_error
from convbench.util.untrusted import loads

QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env in any folder above
}
"""Environment variables by which litellm fetches, reports and prints nothing of its own."""
CONVERSATION = {
    "ContextWindowExceededError": "the conversation is longer than the model's context",
    "ContentPolicyViolationError": "the provider's filter refused",
}
"""Classes of litellm's errors that concern one conversation → what to say."""
LOST = ("Timeout", "APIConnectionError", "APIResponseValidationError")
"""Classes of its errors after which the provider may have answered."""
_LOADING = threading.Lock()


def load_litellm() -> Any:
    """Return the module litellm, imported once, set to fetch, report and print nothing of its own.

    Raise MissingDependency if it is not installed.
    """
    with _LOADING:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import litellm
        except ImportError:
            raise MissingDependency(
                "litellm", needed_for="this provider", install="pip install litellm"
            ) from None
        litellm.telemetry = litellm.drop_params = False
        litellm.suppress_debug_info = True
    return litellm


class LitellmModel(ServedModel):
    """One model of one provider, `provider/name` as litellm writes it."""

    starts = True

    def __init__(
        self,
        ref: str,
        *,
        api_base: str | None = None,
        needs_key: bool = True,
        parameters: Parameters,
        price: Price | None = None,
        media: Path | None = None,
    ) -> None:
        """`needs_key` is False for an address that the user typed, whose server may need none."""
        super().__init__(ref, api_base, parameters, price, media)
        self.litellm: Any = None
        self._needs_key = needs_key
        provider, _, name = ref.partition("/")
        self.key_variable = f"{provider.upper()}_API_KEY"
        self.quota_is_a_rate = provider == "dashscope"
        self.marks = provider == "anthropic" or (
            provider in ("bedrock", "vertex_ai") and "claude" in name
        )

    def check(self) -> None:
        """Load litellm; raise FatalModelError if it knows no such provider or its key is not set.

        A missing key is no error for an address that the user typed. Nothing is sent.
        """
        self.litellm = load_litellm()
        try:
            self.litellm.get_llm_provider(self.ref, api_base=self.url)
        except self.litellm.exceptions.BadRequestError:
            name = self.ref.partition("/")[0]
            raise FatalModelError(
                f"{self.ref}: found no provider {name!r}; expected PROVIDER/NAME, e.g. "
                "openai/gpt-4o-mini, or --api-base URL with the name that a server gives it"
            ) from None
        environment = self.litellm.validate_environment(self.ref)
        missing = [str(name) for name in environment.get("missing_keys", ())]
        self.key_variable = " or ".join(missing) or self.key_variable
        if missing and not environment.get("keys_in_environment") and self._needs_key:
            names = (" and " if "AWS" in missing[0] else " or ").join(missing)
            raise FatalModelError(f"{self.ref}: no key; set the environment variable {names}")

    async def start(self) -> None:
        """Load litellm and check provider and key as `check` does, unless that was done before."""
        if self.litellm is None:
            self.check()

    async def send(self, fields: dict[str, Any]) -> Completion:
        """Return the reply to one request with these fields. Raises ModelError, also for what
        litellm itself refuses."""
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
        """Return the completion in litellm's reply, which has the form of OpenAI's. `price` (a
        batch's) replaces the list price. Raises as `replies.read_reply` does."""
        body = json.dumps(reply.model_dump(), default=str).encode()
        return self.completion_of(loads(body), price)

    def error_of(self, error: Exception) -> ModelError:
        """Return, without raising it, the model error for an error of litellm: by the provider's
        own response, which the errors behind it keep; for what litellm itself refuses by its
        words."""
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
        if kind in LOST:
            return BrokenReply(f"{self.ref}: connection lost or reply unreadable ({words})")
        if kind in CONVERSATION:
            return FatalModelError(f"{refusal}; {CONVERSATION[kind]}", stops_run=False)
        return refusal

    async def aclose(self) -> None:
        """Close the connections of its batches; those of litellm are shared and end with us."""
        if self.batches is not None:
            await self.batches.aclose()
