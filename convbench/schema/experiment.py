"""Experiment: a whole table from one file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from convbench.schema.noun import Mode, Name, Noun


class ExperimentSpec(Noun):
    """Tasks × modes × protocols × lengths × sizes × seeds, and the learners compared on each."""

    name: Name
    """Name on the command line."""
    title: str
    """One line for lists."""
    tasks: tuple[str, ...] = Field(min_length=1)
    """Tasks."""
    modes: tuple[Mode, ...] = ("thinking",)
    """Modes."""
    protocols: tuple[str | None, ...] = (None,)
    """Protocols; null is the task's own."""
    turns: tuple[int | None, ...] = (None,)
    """Policy turns; null is the protocol's own number."""
    rows: tuple[int | None, ...] = (None,)
    """Sizes of the logged train set in rows of the recipe's unit (`data.unit`): for each the nested
    subset of whole tasks nearest to it; null takes all."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of questions, conversations and training."""
    model: str | None = None
    """The policy; null takes the default."""
    teacher: str | None = None
    """Model of the other speaker, where a protocol asks for one."""
    judges: tuple[str, ...] = Field(min_length=1)
    """Judges; the first one's reward trains."""
    learners: tuple[str, ...] = ()
    """Recipes; `base` is the untrained policy."""
    count: int | Literal["all"] | None = None
    """Questions a task; null is the task's own number."""
    samples: int = Field(default=3, ge=1)
    """Conversations a question."""
    temperatures: tuple[float, ...] | None = None
    """Temperatures; null takes the defaults."""
    max_tokens: int | None = None
    """Limit of one reply; null takes the default."""
    sets: dict[str, Any] = Field(default_factory=dict)
    """`--set` of build: dotted keys `task.…` and `protocol.…`."""
    recipe_sets: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """`--set` of train, by learner; `all` holds for every learner."""
    also: tuple[str, ...] = ()
    """Experiments that belong to the same table and are run after this one."""
    reference: str | None = None
    """What it reproduces."""

    def sets_of(self, learner: str) -> dict[str, Any]:
        """Return the `--set` of train for one learner."""
        return {**self.recipe_sets.get("all", {}), **self.recipe_sets.get(learner, {})}
