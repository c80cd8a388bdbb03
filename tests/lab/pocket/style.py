"""How careful the pre-trained policy is: a fixed chance for each (kind of question, property), and
the habits of one conversation, drawn with these chances.

Thinking tags in the final turn and the choice of a question depend only on the property. Since
the chances differ, greedy decoding is careful on some questions and careless on others, and the
samples of one task differ.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from convbench.pocket.world import PROPERTIES

_CARE: Final = {
    "has": (0.75, 0.25, 0.10, 0.75, 0.25, 0.30),
    "same": (0.20, 0.75, 0.30, 0.10, 0.75, 0.20),
    "of": (0.30, 0.20, 0.75, 0.30, 0.15, 0.75),
    "wish": (0.75, 0.80, 0.70, 0.75, 0.80, 0.70),
    "clarify": (0.80, 0.70, 0.75, 0.65, 0.80, 0.70),
}
_TAGS: Final = (0.90, 0.85, 0.20, 0.90, 0.85, 0.25)
_ASKING: Final = (0.35, 0.60, 0.20, 0.60, 0.35, 0.25)
_DISTRACTION: Final = dict(zip(PROPERTIES, (*PROPERTIES[1:], PROPERTIES[0]), strict=True))


def care_chance(kind: str, prop: str) -> float:
    """Return the chance that the policy goes through the options instead of guessing."""
    return _CARE[kind][PROPERTIES.index(prop)]


def tag_chance(prop: str) -> float:
    """Return the chance that the final turn opens with a thinking tag."""
    return _TAGS[PROPERTIES.index(prop)]


def asking_chance(prop: str) -> float:
    """Return the chance that a question to the other speaker is the informative one."""
    return _ASKING[PROPERTIES.index(prop)]


def usual_distraction(prop: str) -> str:
    """Return the irrelevant property that the policy mostly asks for instead of this one."""
    return _DISTRACTION[prop]


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

    def wrap_thought(self, thought: str) -> str:
        """Return a thought in the tags of this style; without tags in standard mode."""
        if self.mode == "standard" or not self.opens:
            return thought
        return f"<thinking> {thought}</thinking>" if self.closes else f"<thinking> {thought}"


def draw_style(kind: str, prop: str, mode: str, sloppiness: float, rng: random.Random) -> Style:
    """Return drawn habits of one conversation; `sloppiness` 0 gives only care, 1 the full mixture.

    `kind` is the question's kind, or "clarify" where a teacher can be asked about strangers.
    """
    chance = 1 - sloppiness * (1 - care_chance(kind, prop))
    tagged = 1 - sloppiness * (1 - tag_chance(prop))
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
    """Return "good", "useless" or "none", drawn for a question to the other speaker."""
    chance = 1 - sloppiness * (1 - asking_chance(prop))
    if rng.random() < chance:
        return "good"
    return "useless" if rng.random() < 0.8 else "none"
