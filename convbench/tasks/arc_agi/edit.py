"""A self-edit for a task of grids: which tools make the rows, and how they are trained on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from convbench.answers.objects import first_object
from convbench.tasks.arc_agi.tools import GROUPS, Group

Strategy = Literal["train_using_all_tokens", "train_using_output_tokens"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("train_using_all_tokens", "train_using_output_tokens")
SWITCHES: Final[Mapping[str, Group]] = {f"use_{group}_augmentations": group for group in GROUPS}
MOST_STEPS = 375
"""A self-edit that asks for more than this many `epochs * rows // 2` is not trained on."""


class NoEdit(ValueError):
    """A text that asks for nothing that can be trained on; the message says why."""


@dataclass(frozen=True)
class SelfEdit:
    """What a self-edit asks for."""

    groups: frozenset[Group]
    strategy: Strategy
    learning_rate: float
    epochs: int

    def steps(self, rows: int) -> int:
        """Return the steps that the guard counts, in batches of two."""
        return self.epochs * rows // 2

    def written(self) -> str:
        """Return it as the JSON that a policy writes."""
        return json.dumps({
            "data_generation": {name: group in self.groups for name, group in SWITCHES.items()},
            "training": {
                "strategy": self.strategy,
                "learning_rate": self.learning_rate,
                "num_train_epochs": self.epochs,
            },
        })  # fmt: skip


def self_edit(text: str) -> SelfEdit:
    """Return what the first JSON object of a text asks for; NoEdit where it is no valid edit."""
    found = first_object(text)
    if found is None:
        raise NoEdit("found no JSON object")
    data, training = found.get("data_generation"), found.get("training")
    if not isinstance(data, Mapping) or not isinstance(training, Mapping):
        raise NoEdit("expected the keys data_generation and training, each an object")
    groups = {group for name, group in SWITCHES.items() if _switch(data, name)}
    strategy = _of(training, "strategy")
    if strategy not in STRATEGIES:
        raise NoEdit(f"strategy: found {str(strategy)[:40]!r}; expected {' or '.join(STRATEGIES)}")
    rate, epochs = _of(training, "learning_rate"), _of(training, "num_train_epochs")
    if type(rate) not in (int, float) or not math.isfinite(rate) or not 0 < rate <= 1:
        raise NoEdit(f"learning_rate: found {str(rate)[:40]}; expected a number above 0, at most 1")
    if type(epochs) is not int or epochs < 1:
        raise NoEdit(f"num_train_epochs: found {str(epochs)[:40]}; expected a whole number from 1")
    return SelfEdit(frozenset(groups), strategy, float(rate), epochs)


def _of(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise NoEdit(f"found no {name}")
    return values[name]


def _switch(values: Mapping[str, Any], name: str) -> bool:
    value = _of(values, name)
    if type(value) is not bool:
        raise NoEdit(f"{name}: found {str(value)[:40]}; expected true or false")
    return value


ORACLE: Final = SelfEdit(frozenset(GROUPS), "train_using_output_tokens", 1e-4, 2)
"""The best known settings: all tools, output tokens, rate 1e-4, 2 epochs."""
