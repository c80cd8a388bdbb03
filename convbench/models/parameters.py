"""The request parameters of one model: what is sent, and what its refusals taught to leave out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from convbench.models.refusals import Refusal, meaning_of
from convbench.schema import Message, Sampling
from convbench.schema.reasoning import Reads
from convbench.util.words import Structured
from convbench.views import without_system

DROPPABLE = ("temperature", "top_p", "seed", "reasoning_effort", "tool_choice")
"""Parameters that may be left out: the model still answers the same question."""
FOREIGN = {
    "reasoning_effort": "thinking|thinkingConfig|thinking_config|output_config|effort",
    "top_p": "topP",
}
"""Names of parameters in providers' own APIs, into which litellm translates ours."""
SEEDS = 2**31
"""A seed is sent modulo this number: some providers take a signed 32-bit integer alone."""
SCHEMA = "JSON schema of its reply"
REPLY = "evaluation"
"""Name of the reply's schema."""
_NO_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)s? (?:is |are )?not (?:supported|allowed|enabled)"
    r"|developer instruction is not enabled|only user and assistant roles|roles must alternate",
    re.IGNORECASE,
)

Note = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr)


class Parameters:
    """The parameters of a model's requests: its alias's settings, and what it refused so far."""

    def __init__(
        self,
        ref: str,
        *,
        drop: Iterable[str] = (),
        headroom: int = 0,
        limit: str = "max_tokens",
        reads: Reads = "field",
        extra_body: Mapping[str, Any] | None = None,
        structured: Structured = "text",
        note: Note = to_stderr,
    ) -> None:
        """`limit` is the name under which the most tokens of a reply are sent."""
        self.ref, self.headroom, self.limit = ref, headroom, limit
        self.reads, self.extra_body = reads, dict(extra_body or {})
        self.structured: Structured = structured
        self._left_out = set(drop)
        self._noted: set[str] = set()
        self._folds_system = False
        self._note = note

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings on which a reply depends besides messages and sampling."""
        return {
            "headroom": self.headroom,
            "reads": self.reads,
            "extra_body": self.extra_body,
            "structured": self.structured,
        }

    def request_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the fields of a chat request for `sampling`, without messages and `extra_body`.

        They are the most tokens of the reply (headroom added), the parameters that are set, tools
        and the reply's schema. What the model refuses is left out, which is noted once.
        """
        out: dict[str, Any] = {self.limit: sampling.max_tokens + self.headroom}
        for name in DROPPABLE:
            value = getattr(sampling, name)
            if value is None:
                continue
            if name in self._left_out:
                self._note_once(name)
            else:
                out[name] = value % SEEDS if name == "seed" else value
        if sampling.tools:
            out["tools"] = list(sampling.tools)
        if sampling.reply_schema is not None and self.structured == "json_schema":
            named = {"name": REPLY, "strict": True, "schema": sampling.reply_schema}
            out["response_format"] = {"type": "json_schema", "json_schema": named}
        return out

    def fit_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages; once the model has refused a system message, with the system prompt
        in the first user message, as in training with such a template."""
        return without_system(messages) if self._folds_system else messages

    def learn(self, refusal: Refusal, sent: Mapping[str, Any]) -> bool:
        """Leave out from now on what a refusal refuses; return True if it was in the request
        `sent`, so that another try may help.

        That is the system message, a parameter that the refusal names, the name of `max_tokens`, or
        the reply's schema where it names nothing else.
        """
        if _NO_SYSTEM.search(refusal.text) and sent["messages"][0]["role"] == "system":
            if not self._folds_system:
                self._folds_system = True
                self._note(
                    f"note: {self.ref} does not support system messages; the system prompt is "
                    "put into the first user message"
                )
            return True
        if meaning_of(refusal) != "unclear":
            return False
        words = f"{refusal.param or ''} {refusal.text}"
        named = [name for name in DROPPABLE if name in sent and re.search(rf"\b{name}\b", words)]
        named = named or [
            name
            for name, foreign in FOREIGN.items()
            if name in sent and re.search(rf"\b(?:{foreign})\b", words)
        ]
        if named:
            self._left_out.update(named)
            return True
        renamed = "max_completion_tokens" in words or "unsupported_parameter" in refusal.names
        if "max_tokens" in sent and renamed and "max_tokens" in words:
            self.limit = "max_completion_tokens"
            return True
        if "response_format" in sent:
            self.structured = "text"
            self._note_once(SCHEMA)
            return True
        return False

    def _note_once(self, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._note(f"note: {self.ref} does not support {name}; it is not sent")


def unsent_names(sampling: Sampling, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parameters that are set in `sampling` and are no key of a request."""
    return tuple(
        name for name in DROPPABLE if getattr(sampling, name) is not None and name not in sent
    )
