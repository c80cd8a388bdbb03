"""Rule speakers: a named Python function used as a model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from convbench.catalog.python import find_function
from convbench.errors import ConvbenchError, FatalModelError
from convbench.models.model import Model
from convbench.schema import Completion, ImagePart, Message, Sampling, TextPart
from convbench.util.untrusted import safe_text

Rule = Callable[..., Any]
"""`fn(messages, example) -> Content`, plain or async. Slow ones should be async. One that answers
with images takes `media`, the folder where their bytes go."""


class RuleModel(Model):
    """A rule as a model; `bind` passes it the example of one conversation."""

    priced = True
    patient = True
    binds = True

    def __init__(
        self,
        ref: str,
        *,
        downloaded: bool = False,
        rule: Rule | None = None,
        media: Path | None = None,
    ) -> None:
        self.ref, self._media = ref, media
        self._example: Mapping[str, Any] = {}
        self._rule = rule or find_function(ref.removeprefix("rule:"), downloaded=downloaded)

    def bind(self, fields: Mapping[str, Any]) -> RuleModel:
        """Return a new model with the same rule, bound to the example of one conversation."""
        bound = copy.copy(self)
        bound._example = fields
        return bound

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the rule's answer as a completion: 0 dollars, token counts None.

        A ConvbenchError of the rule passes unchanged; any other exception becomes a FatalModelError
        that fails this conversation only. An answer that is neither text nor message parts raises
        one that stops the run.
        """
        takes_media = "media" in inspect.signature(self._rule).parameters
        try:
            more = {"media": self._media} if takes_media else {}
            answer = self._rule(list(messages), self._example, **more)
            if inspect.isawaitable(answer):
                answer = await answer
        except ConvbenchError:
            raise
        except Exception as error:  # a user's function may raise anything
            line = f"{self.ref}: {type(error).__name__}: {error}"
            raise FatalModelError(line, stops_run=False) from error
        if isinstance(answer, str):
            return Completion(safe_text(answer), finish_reason="rule", cost_usd=0.0)
        parts = tuple(answer) if isinstance(answer, list | tuple) else ()
        if not parts or not all(isinstance(part, TextPart | ImagePart) for part in parts):
            kind = type(answer).__name__
            raise FatalModelError(f"{self.ref}: returned {kind}; expected text or message parts")
        return Completion(parts, finish_reason="rule", cost_usd=0.0)
