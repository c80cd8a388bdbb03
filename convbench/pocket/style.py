"""The habits of one conversation, drawn by the chances in `care`."""

from __future__ import annotations

import random
from dataclasses import dataclass

from convbench.pocket import care


@dataclass(frozen=True)
class Style:
    """The habits drawn for one conversation.

    `careful`: goes through the options. `partial`: stops after that many options (4: none left
    out). `opens`, `closes`: whether thinking is opened and closed with tags. `final`: how the
    last turn goes, one of "tags", "plain", "unclosed", "missing".
    """

    mode: str
    careful: bool
    partial: int
    opens: bool
    closes: bool
    final: str
    wavers: bool

    def think(self, thought: str) -> str:
        """Wrap a thought in tags as this style does; bare in standard mode."""
        if self.mode == "standard" or not self.opens:
            return thought
        return f"<thinking> {thought}</thinking>" if self.closes else f"<thinking> {thought}"


def draw_style(kind: str, prop: str, mode: str, sloppiness: float, rng: random.Random) -> Style:
    """Draw the habits of one conversation; `sloppiness` 0 gives care only, 1 the full mixture.

    `kind` is the question's kind, or "clarify" where a teacher can be asked about strangers.
    """
    chance = 1 - sloppiness * (1 - care.care(kind, prop))
    tagged = 1 - sloppiness * (1 - care.tags(prop))
    final = "tags" if rng.random() < tagged else "plain"
    slip = rng.random()
    if slip < 0.06 * sloppiness:
        final = "missing" if slip < 0.03 * sloppiness else "unclosed"
    return Style(
        mode=mode,
        careful=rng.random() < chance,
        partial=rng.choice((1, 2)) if rng.random() < 0.1 * sloppiness else 4,
        opens=rng.random() > 0.1 * sloppiness,
        closes=rng.random() > 0.06 * sloppiness,
        final=final,
        wavers=rng.random() < 0.06 * sloppiness,
    )


def question_habit(prop: str, sloppiness: float, rng: random.Random) -> str:
    """Draw "good", "useless" or "none" for a question put to the other speaker."""
    chance = 1 - sloppiness * (1 - care.asking(prop))
    if rng.random() < chance:
        return "good"
    return "useless" if rng.random() < 0.8 else "none"
