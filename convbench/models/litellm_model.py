"""Client of all other providers through litellm: loaded at the first call, quiet, no retries."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError, MissingDependency, ModelError, Usage
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.model import Model
from convbench.models.openai_http import wire_messages
from convbench.models.prices import Price, cache_counts
from convbench.models.refusals import (
    REPLY,
    Parameters,
    error_message,
    refused_parameter,
    reply_error,
    unsent_names,
)
from convbench.models.replies import FIELDS, completion_of, reasoning_of
from convbench.net.httpx_guard import GuardedResponse, guard_httpx
from convbench.net.untrusted_json import safe_count, token_counts
from convbench.schema import Completion, Message, Sampling
from convbench.util.words import Structured

UNREAD = (400, 422)
"""Statuses that litellm invents for a reply that it cannot parse."""


def load_litellm() -> Any:
    """Return the module litellm, set to fetch, report and print nothing of its own.

    Environment variables for that are set where they are missing, and stay; LITELLM_MODE is
    restored. Raise MissingDependency if litellm is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    os.environ.setdefault("LITELLM_LOG", "ERROR")
    before = os.environ.get("LITELLM_MODE")
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it reads a .env in any folder above
    try:
        import litellm
    except ImportError:
        raise MissingDependency(
            "litellm", needed_for="this provider", install="pip install litellm"
        ) from None
    finally:
        os.environ.pop("LITELLM_MODE")
        if before is not None:
            os.environ["LITELLM_MODE"] = before
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    return litellm


class LitellmModel(Model):
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
        self.ref = ref
        self.priced = price is not None
        self._api_base, self._needs_key = api_base, needs_key
        self._parameters, self._price, self._media = parameters, price, media
        self._answered = False
        self.headroom = parameters.headroom
        self.caches = price.caches if price else None
        self._marks = takes_marks(ref)
        self.litellm: Any = None
        self._variable = "the environment"

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return what a reply depends on: `url` (None without one), `headroom`, `reads`,
        `extra_body` and `structured`."""
        return {"url": self._api_base, **self._parameters.settings}

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return how it is made to reply by a JSON schema: `json_schema`, `tool` or `text`, which
        means it is not."""
        return self._parameters.structured

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many prompt and reply tokens, none of them cached; None if the
        price is unknown."""
        return self._price.cost_of(prompt, reply) if self._price else None

    def check(self) -> None:
        """Load litellm; raise FatalModelError if it knows no such provider or its key is not set.

        A missing key is no error for an address that the user typed. Nothing is sent. Raise
        MissingDependency if litellm is not installed.
        """
        self.litellm = load_litellm()
        try:
            self.litellm.get_llm_provider(self.ref, api_base=self._api_base)
        except self.litellm.exceptions.BadRequestError:
            name = self.ref.partition("/")[0]
            raise FatalModelError(
                f"{self.ref}: found no provider {name!r}; expected PROVIDER/NAME, e.g. "
                "openai/gpt-4o-mini, or --api-base URL with the name that a server gives it"
            ) from None
        environment = self.litellm.validate_environment(self.ref)
        missing = [str(name) for name in environment.get("missing_keys", ())]
        self._variable = " or ".join(missing) or _key_variable(self.ref)
        if missing and not environment.get("keys_in_environment") and self._needs_key:
            names = " and ".join(missing) if "AWS" in missing[0] else " or ".join(missing)
            raise FatalModelError(f"{self.ref}: no key; set the environment variable {names}")

    async def start(self) -> None:
        """Load litellm and check provider and key as `check` does, unless that was done before."""
        if self.litellm is None:
            self.check()

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, with the parameters that were not sent in `left_out`.

        If a reply schema or a parameter that may be left out (such as `temperature`) is refused,
        the call is repeated without it; if the system message is, with the system prompt in the
        first user message; if `max_tokens` is, with `max_completion_tokens`. Nothing else is tried
        again. Raise MissingDependency without litellm, a ModelError for anything else. `key` is
        unused.
        """
        await self.start()
        while True:  # each refusal leaves one more thing out
            fields = self.request_fields(messages, sampling)
            with guard_httpx(self.ref) as response:
                try:
                    completion = self.read_reply(await self._request(fields), response)
                    return replace(completion, left_out=unsent_names(sampling, fields))
                except ModelError:
                    raise
                except Exception as error:
                    # litellm raises its own classes, openai's, httpx's and plain ValueErrors
                    if not self.learn_error(error, fields):
                        raise self.error_of(error, response) from error

    def request_fields(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        """Return the keyword arguments of a call for litellm as a dict.

        They are `messages` as JSON data, the reply's limit of tokens and the requested parameters;
        those that the model is known to refuse are left out, which is noted once. Model, address
        and `extra_body` are not among them. Raise FatalModelError if an image cannot be read.
        """
        return {
            "messages": wire_messages(
                self._parameters.fit_messages(messages), self._media, marks=self._marks
            ),
            **self._parameters.request_fields(sampling),
        }

    def unsent_parameters(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the parameters that are set in `sampling` but not sent; empty if all
        are."""
        return self._parameters.unsent_parameters(sampling)

    @property
    def extra_body(self) -> Mapping[str, Any]:
        """Return the further fields of every request, set by its alias and unknown to litellm;
        empty without any."""
        return self._parameters.extra_body

    def learn_refusal(self, status: int, text: str, sent: Mapping[str, Any]) -> bool:
        """Remember what a refusal (its status and message) refuses; return True if the same call
        may succeed now.

        Return False if it is no refusal of a parameter, schema or system message in the request
        `sent`.
        """
        refused = refused_parameter(status, text)
        return refused and self._parameters.learn_refusal(status, text, sent)

    def learn_error(self, error: Exception, sent: Mapping[str, Any]) -> bool:
        """Remember what a refusal that litellm raised refuses; return True if the same call may
        succeed now.

        Refusals of litellm itself count too. An error without a status counts as status 500.
        """
        return self.learn_refusal(_status_of(error), _error_line(error), sent)

    def status_error(self, status: int, text: str, headers: Mapping[str, str]) -> ModelError:
        """Return, without raising it, the error for a reply whose status is not 200."""
        return reply_error(
            self.ref,
            status,
            text,
            headers,
            key_variable=self._variable,
            answered=self._answered,
        )

    async def _request(self, fields: dict[str, Any]) -> Any:
        more: dict[str, Any] = {"extra_body": self.extra_body} if self.extra_body else {}
        if "tools" in fields:
            # else litellm imports `mcp`, which is not needed; there is no public option for it
            more["_skip_mcp_handler"] = True
        return await self.litellm.acompletion(
            model=self.ref, api_base=self._api_base, num_retries=0, max_retries=0, **fields, **more
        )

    async def aclose(self) -> None:
        """Close litellm's connections, which all its models share, and those of batches."""
        if self.batches is not None:
            await self.batches.aclose()
        close = getattr(self.litellm, "close_litellm_async_clients", None)
        if close is not None:
            await close()

    def error_of(self, error: Exception, response: GuardedResponse) -> ModelError:
        """Return, without raising it, the model error for an error of litellm.

        `response` is the guarded response to the request; if it was refused, the result is that
        error. An unreadable reply gives BrokenReply with its usage, a context that is too long or a
        provider's filter a FatalModelError that does not stop the run.
        """
        if response.refused is not None:
            return response.refused
        status, text = _status_of(error), _error_line(error)
        if response.status == 200 and (status >= 500 or status in UNREAD):
            line = f"{self.ref}: reply is not a chat completion ({text})"
            return BrokenReply(line, usage=self.read_usage(response))
        kind = type(error).__name__
        if "Cannot connect to host" in text or "Name or service not known" in text:
            return Unreachable(f"{self.ref}: cannot connect: {text}")
        if kind in ("Timeout", "APIConnectionError", "APITimeoutError"):
            return BrokenReply(f"{self.ref}: connection lost ({text})")
        if kind == "ContextWindowExceededError":
            line = f"{self.ref}: the conversation is longer than the model's context: {text}"
            return FatalModelError(line, stops_run=False)
        if kind == "ContentPolicyViolationError":
            return FatalModelError(f"{self.ref}: the provider's filter refused", stops_run=False)
        return self.status_error(status, text, _headers_of(error))

    def read_reply(
        self, reply: Any, response: GuardedResponse, price: Price | None = None
    ) -> Completion:
        """Return the completion in litellm's reply. `price` (a batch's) replaces the list price.

        Raise BrokenReply with the reported usage for a malformed or empty reply, and
        FatalModelError, which does not stop the run, if all tokens went into reasoning or a filter
        refused.
        """
        usage = self.read_usage(response, getattr(reply, "usage", None), price)
        try:
            choice = reply.choices[0]
            content, reason = choice.message.content, choice.finish_reason
        except (AttributeError, IndexError, TypeError):
            line = f"{self.ref}: reply is not a chat completion"
            raise BrokenReply(line, usage=usage) from None
        forced = _forced_arguments(choice.message)
        calls = None if forced else getattr(choice.message, "tool_calls", None)
        content = forced or content
        message_fields = {name: getattr(choice.message, name, None) for name in FIELDS}
        completion = completion_of(
            self.ref,
            content,
            reason,
            usage=usage,
            model=getattr(reply, "model", None),
            reasoning=reasoning_of(message_fields, getattr(reply, "usage", None)),
            tags=self._parameters.reads == "tags",
            calls=calls,
        )
        self._answered = True
        return completion

    def read_usage(
        self, response: GuardedResponse, read: Any = None, price: Price | None = None
    ) -> Usage:
        """Return the reported prompt and reply tokens of a reply and their dollars; each None if
        unknown.

        litellm's counts in `read`, which include cached tokens, come before those of the response's
        body; its 0 for an unreported count becomes None. `price` replaces the list price.
        """
        prompt, reply = token_counts(response.body)
        prompt = safe_count(getattr(read, "prompt_tokens", None)) or prompt
        reply = safe_count(getattr(read, "completion_tokens", None)) or reply
        price = price or self._price
        if price is None or prompt is None or reply is None:
            return Usage(prompt, reply)
        return Usage(prompt, reply, price.cost_of(prompt, reply, *cache_counts(read)))


def takes_marks(ref: str) -> bool:
    """Return True if the provider caches exactly what is marked: Anthropic, Claude at Bedrock or
    Vertex AI."""
    provider, _, name = ref.partition("/")
    return provider == "anthropic" or (provider in ("bedrock", "vertex_ai") and "claude" in name)


def _forced_arguments(message: Any) -> str | None:
    """Return the arguments of the call that a reply was forced to make, which are its content; None
    if there is none."""
    for call in getattr(message, "tool_calls", None) or ():
        function = getattr(call, "function", None)
        if getattr(function, "name", None) == REPLY:
            arguments = getattr(function, "arguments", None)
            return arguments if isinstance(arguments, str) else None
    return None


def _key_variable(ref: str) -> str:
    return f"{ref.split('/', 1)[0].upper()}_API_KEY"


def _status_of(error: Exception) -> int:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else 500


def _error_line(error: Exception) -> str:
    """Return an error's text on one line, without litellm's advice and without keys."""
    raw = str(error).split("Traceback (most recent call last)")[0]
    text = error_message(raw.encode("utf-8", "replace"))
    return text.removeprefix("litellm.").split(" Handle with ")[0]


def _headers_of(error: Exception) -> dict[str, str]:
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None)
    return {str(name).lower(): str(value) for name, value in dict(headers or {}).items()}
