"""Client of all other providers through litellm: loaded at the first call, quiet, no retries."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from convbench.errors import (
    BrokenReply,
    FatalModelError,
    MissingDependency,
    ModelError,
    Unreachable,
)
from convbench.models.openai import ServedModel, wire_messages
from convbench.models.parameters import Parameters, Refusal, read_refusal, unsent_names
from convbench.models.prices import Price
from convbench.models.replies import read_reply
from convbench.schema import Completion, Message, Sampling
from convbench.util.hub import error_chain
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
        self._marks = provider == "anthropic" or (
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

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, with the parameters that were not sent in `left_out`.

        If a parameter, the schema or the system message is refused, also by litellm itself, the
        call is repeated without it; nothing else is tried again. `key` is unused.
        """
        await self.start()
        more: dict[str, Any] = {"model": self.ref, "api_base": self.url}
        if self.parameters.extra_body:
            more["extra_body"] = self.parameters.extra_body
        if sampling.tools:
            # else litellm imports `mcp`, which is not needed; there is no public option for it
            more["_skip_mcp_handler"] = True
        while True:  # each refusal leaves one more thing out
            fields = self.request_fields(messages, sampling)
            try:
                reply = await self.litellm.acompletion(
                    num_retries=0, max_retries=0, **fields, **more
                )
            except Exception as error:
                # litellm raises its own classes, openai's, httpx's and plain ValueErrors
                if not self.learn_error(error, fields):
                    raise self.error_of(error) from error
                continue
            completion = self.read_reply(reply)
            return replace(completion, left_out=unsent_names(sampling, fields))

    def request_fields(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        """Return the keyword arguments of a call for litellm: messages and parameters.

        Model, address and `extra_body` are not among them. Raise FatalModelError if an image cannot
        be read.
        """
        fitted = self.parameters.fit_messages(messages)
        sent = wire_messages(fitted, self.media, marks=self._marks)
        return {"messages": sent, **self.parameters.request_fields(sampling)}

    def read_reply(self, reply: Any, price: Price | None = None) -> Completion:
        """Return the completion in litellm's reply, which has the form of OpenAI's. `price` (a
        batch's) replaces the list price. Raises as `replies.read_reply` does."""
        body = loads(json.dumps(reply.model_dump(), default=str).encode())
        tags, price = self.parameters.reads == "tags", price or self.list_price
        return read_reply(self.ref, body, price=price, tags=tags)

    def learn_error(self, error: Exception, sent: Mapping[str, Any]) -> bool:
        """Leave out from now on what an error of litellm refuses; return True if another try may
        help."""
        return self.parameters.learn(_refusal_of(error), sent)

    def error_of(self, error: Exception) -> ModelError:
        """Return, without raising it, the model error for an error of litellm."""
        if isinstance(error, ModelError):
            return error
        refusal, kind = _refusal_of(error), type(error).__name__
        if "Cannot connect to host" in str(error) or "Name or service not known" in str(error):
            return Unreachable(f"{self.ref}: cannot connect: {refusal.text}")
        if kind in LOST:
            return BrokenReply(f"{self.ref}: connection lost or reply unreadable ({refusal.text})")
        if kind in CONVERSATION:
            refusal = replace(refusal, meaning="conversation", why=CONVERSATION[kind])
        return self.refusal_error(refusal)

    async def aclose(self) -> None:
        """Close the connections of its batches; those of litellm are shared and end with us."""
        if self.batches is not None:
            await self.batches.aclose()


def _refusal_of(error: Exception) -> Refusal:
    """Return the refusal in an error of litellm: the provider's own response, which the errors
    behind it keep; of what litellm itself refuses its words."""
    for cause in error_chain(error):
        response = getattr(cause, "response", None)
        with suppress(Exception):  # httpx: a body that was not read
            if response is not None and response.status_code >= 400 and response.content:
                return read_refusal(response.status_code, response.content, response.headers)
    status, text = getattr(error, "status_code", None), str(error).removeprefix("litellm.")
    words = text.split("Traceback (most recent call last)")[0].split(" Handle with ")[0].strip()
    return read_refusal(status if isinstance(status, int) else 500, words, {})
