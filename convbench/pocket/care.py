"""How careful the pre-trained policy is: a fixed chance for each (question kind, property).

Thinking tags in the final turn and the choice of a question go by the property alone. Since
the chances differ, greedy decoding is careful on some questions and careless on others, and the
samples of one task differ.
"""

from __future__ import annotations

from typing import Final

from convbench.pocket.words import PROPERTIES

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


def care(kind: str, prop: str) -> float:
    """Chance that the policy goes through the options instead of guessing."""
    return _CARE[kind][PROPERTIES.index(prop)]


def tags(prop: str) -> float:
    """Chance that the final turn opens with a thinking tag."""
    return _TAGS[PROPERTIES.index(prop)]


def asking(prop: str) -> float:
    """Chance that a question put to the other speaker is the informative one."""
    return _ASKING[PROPERTIES.index(prop)]


def distraction(prop: str) -> str:
    """The property that the policy mostly asks for in vain when this one is wanted."""
    return _DISTRACTION[prop]
