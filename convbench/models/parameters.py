"""What a model takes of a request, learnt from its refusals: sampling parameters, a system message.

What is left out or moved is noted once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from convbench.models.refusals import named_parameters, refused_schema, refused_system
from convbench.schema import Message, Sampling
from convbench.schema.reasoning import Reads
from convbench.views import without_system
from convbench.words import Structured

REPLY = "evaluation"
"""Name of a reply's schema, and of the tool whose arguments are the reply."""
SCHEMA = "JSON schema of its reply"
DROPPABLE = ("temperature", "top_p", "seed", "reasoning_effort", "logprobs", "tool_choice")
"""Parameters without which a model still answers the same question."""

Note = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a note for the user."""
    print(line, file=sys.stderr)


class Parameters:
    """Which parameters a model gets, learnt from its alias and its refusals."""

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
        token_ids: bool = False,
    ) -> None:
        """`token_ids`: a server that names sampled tokens by their ids where it is asked to."""
        self.ref, self.headroom, self.limit = ref, headroom, limit
        self.reads, self.extra_body = reads, dict(extra_body or {})
        self.structured = structured
        self._known = set(drop)
        self._noted: set[str] = set()
        self._folds_system = False
        self._note = note
        self.token_ids = token_ids

    @property
    def settings(self) -> dict[str, Any]:
        """What a reply hangs on beside messages and sampling."""
        return {
            "headroom": self.headroom, "reads": self.reads, "extra_body": self.extra_body,
            "structured": self.structured,
        }  # fmt: skip

    def fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the request's fields for `sampling`."""
        out: dict[str, Any] = {self.limit: sampling.max_tokens + self.headroom}
        for name in DROPPABLE:
            if not _asked(sampling, name):
                continue
            if name in self._known:
                self._say(name)
            else:
                out[name] = getattr(sampling, name)
        if self.token_ids and "logprobs" in out:
            out["return_tokens_as_token_ids"] = True
        if sampling.tools:
            out["tools"] = list(sampling.tools)
        return out | self._structure(sampling)

    def _structure(self, sampling: Sampling) -> dict[str, Any]:
        """Return the fields that make the reply follow a schema."""
        schema = sampling.reply_schema
        if schema is None or self.structured == "text":
            return {}
        if self.structured == "json_schema":
            named = {"name": REPLY, "strict": True, "schema": schema}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        if sampling.reasoning_effort not in (None, "none"):
            return {}  # a model that thinks may not be made to call a tool
        return {
            "tools": [{"type": "function", "function": {"name": REPLY, "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": REPLY}},
        }

    def missing(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the parameters of `sampling` that are not sent."""
        return unsent(sampling, self.fields(sampling))

    def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages as this model takes them: after a refused system message the system
        prompt stands in the first user message, as training has it for such a template."""
        return without_system(messages) if self._folds_system else messages

    def refused(self, status: int, text: str, sent: Mapping[str, Any]) -> bool:
        """Learn from a refusal; return whether another try has a chance: whether the request holds
        what is refused. It may have been sent before another call's refusal was learnt from.

        `text` is what the provider said, with the parameter's name in it; `sent` is the request.
        """
        if refused_system(status, text) and sent["messages"][0]["role"] == "system":
            if not self._folds_system:
                self._folds_system = True
                self._note(
                    f"note: {self.ref} takes no system message; the system prompt stands in the "
                    "first user message"
                )
            return True
        if refused_schema(status, text) and _structured(sent):
            self.structured = "text"
            self._say(SCHEMA)
            return True
        names = [name for name in named_parameters(text, DROPPABLE) if name in sent]
        if names:
            self._known.update(names)
            return True
        if "max_tokens" in sent and any(f"{q}max_tokens{q}" in text for q in "'`\""):
            self.limit = "max_completion_tokens"
            return True
        return False

    def _say(self, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._note(f"note: {self.ref} takes no {name}; it is left out")


def _structured(sent: Mapping[str, Any]) -> bool:
    """Whether a request has a reply's schema."""
    return "response_format" in sent or isinstance(sent.get("tool_choice"), dict)


def unsent(sampling: Sampling, sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters of `sampling` that a request does not hold."""
    return tuple(name for name in DROPPABLE if _asked(sampling, name) and name not in sent)


def _asked(sampling: Sampling, name: str) -> bool:
    return getattr(sampling, name) is not None
