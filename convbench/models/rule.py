"""Rule speakers: a named Python function used as a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from convbench.catalog.python import find_function
from convbench.engine.caller import offload_read
from convbench.errors import ConvbenchError, FatalModelError
from convbench.models.model import Model
from convbench.net.untrusted_json import safe_text
from convbench.schema import Completion, Content, ImagePart, Message, Sampling, TextPart, text_of

Rule = Callable[..., Any]
"""`fn(messages, example) -> Content`, plain or async. Slow ones should be async. One that answers
with images takes `media`, the folder where their bytes go."""


class RuleModel(Model):
    """A rule as a model; `bind` passes it the example of one conversation."""

    priced = True
    patient = True

    def __init__(
        self,
        ref: str,
        *,
        downloaded: bool = False,
        rule: Rule | None = None,
        example: Mapping[str, Any] | None = None,
        media: Path | None = None,
    ) -> None:
        self.ref = ref
        self._media = media
        self._rule = rule or find_function(ref.removeprefix("rule:"), downloaded=downloaded)
        self._example = example

    binds = True

    def bind(self, example: Mapping[str, Any]) -> RuleModel:
        """Return a new model with the same rule, bound to the example of one conversation."""
        return RuleModel(self.ref, rule=self._rule, example=example, media=self._media)

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the rule's answer as a completion: 0 dollars, token counts None.

        A ConvbenchError of the rule passes unchanged; any other exception becomes a FatalModelError
        that fails this conversation only. An answer that is neither text nor message parts raises
        one that stops the run. `sampling` and `key` are not used.
        """
        try:
            extra = {"media": self._media} if _takes_media(self._rule) else {}
            call = partial(self._rule, list(messages), self._example or {}, **extra)
            answer = await offload_read(call, (text_of(message["content"]) for message in messages))
            if inspect.isawaitable(answer):
                answer = await answer
        except ConvbenchError:
            raise
        except Exception as error:  # a user's function may raise anything
            line = f"{self.ref}: {type(error).__name__}: {error}"
            raise FatalModelError(line, stops_run=False) from error
        return Completion(_as_content(self.ref, answer), finish_reason="rule", cost_usd=0.0)


def _takes_media(rule: Rule) -> bool:
    """Return True if a rule takes the folder of images' bytes (a parameter named `media`)."""
    return "media" in inspect.signature(rule).parameters


def _as_content(ref: str, answer: object) -> Content:
    if isinstance(answer, str):
        return safe_text(answer)
    if isinstance(answer, list | tuple) and answer:
        parts = tuple(part for part in answer if isinstance(part, TextPart | ImagePart))
        if len(parts) == len(answer):
            return parts
    raise FatalModelError(
        f"{ref}: returned {type(answer).__name__}; expected text or message parts"
    )
