"""Rule speakers: a named Python function used as a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convbench.catalog.python import find_function
from convbench.errors import ConvbenchError, FatalModelError
from convbench.models.model import Messages, Model
from convbench.schema import Completion, ImagePart, Sampling, TextPart
from convbench.util.untrusted import safe_text

Rule = Callable[..., Any]
"""`fn(messages, example) -> Content`, plain or async; one that answers with images takes `media`,
the folder where their bytes go."""


class RuleModel(Model):
    """A rule as a model; it gets the example of one conversation."""

    priced = patient = binds = True

    def __init__(
        self,
        ref: str,
        *,
        downloaded: bool = False,
        rule: Rule | None = None,
        media: Path | None = None,
    ) -> None:
        self.ref, self._media = ref, media
        self._rule = rule or find_function(ref.removeprefix("rule:"), downloaded=downloaded)

    async def complete(self, messages: Messages, sampling: Sampling, *, key: str) -> Completion:
        """Return the rule's answer at 0 dollars.

        Its ConvbenchErrors pass unchanged; any other exception becomes a FatalModelError that fails
        this conversation only. One that stops the run is raised for an answer of another type.
        """
        takes_media = "media" in inspect.signature(self._rule).parameters
        try:
            more = {"media": self._media} if takes_media else {}
            answer = self._rule(list(messages), self.example, **more)
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
