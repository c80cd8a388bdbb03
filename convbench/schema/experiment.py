"""Experiment: a results table from one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from convbench.schema.base import FrozenModel, Mode, Name
from convbench.schema.run import Devices

POOLED = "pooled-"
"""Prefix of a recipe that learns from all tasks' logs together."""


def recipe_of(learner: str) -> str:
    """Return the recipe of a learner, without its label and the prefix of pooled ones: `swift` for
    `pooled-swift:warm`."""
    return learner.removeprefix(POOLED).partition(":")[0]


def _flatten_keys(value: Any) -> Any:
    """Return `{task: {sample: {train: 0.8}}}` as `{task.sample.train: 0.8}`, so that a nested file
    or `--set sets.task.sample.train=0.8` sets one value, not all of `task`. A key that has dots
    already stands for its complete value."""
    return dict(_iter_leaves(value, "")) if isinstance(value, dict) else value


def _iter_leaves(value: Mapping[Any, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        name = f"{above}{key}"
        if isinstance(inner, dict) and inner and "." not in str(key):
            yield from _iter_leaves(inner, f"{name}.")
        else:
            yield name, inner


def _as_list(value: Any) -> Any:
    """Return a single value as a list of it."""
    return value if value is None or isinstance(value, (list, tuple)) else [value]


Sets = Annotated[dict[str, Any], BeforeValidator(_flatten_keys)]
"""Dotted keys with their values."""


class Settings(FrozenModel):
    """Settings of some cells only; null keeps the experiment's."""

    teacher: str | None = None
    """Model of the other speaker."""
    count: int | Literal["all"] | None = None
    """Questions per task."""
    samples: int | None = Field(default=None, ge=1)
    """Conversations per question."""
    temperatures: tuple[float, ...] | None = None
    """Temperatures."""
    max_tokens: int | None = None
    """Limit of one reply."""
    sets: Sets = Field(default_factory=dict)
    """`--set` of build, e.g. `task.source.file`; laid over the experiment's."""
    recipe_sets: dict[str, Sets] = Field(default_factory=dict)
    """`--set` of train, by learner; `all` applies to every learner. Laid over the experiment's."""


class Match(FrozenModel):
    """Which cells are selected: one value or several of each; null selects any."""

    task: Annotated[tuple[str, ...] | None, BeforeValidator(_as_list)] = None
    """Tasks."""
    mode: Annotated[tuple[Mode, ...] | None, BeforeValidator(_as_list)] = None
    """Modes."""
    protocol: Annotated[tuple[str, ...] | None, BeforeValidator(_as_list)] = None
    """Protocols that the experiment names."""
    turns: Annotated[tuple[int, ...] | None, BeforeValidator(_as_list)] = None
    """Policy turns."""
    seed: Annotated[tuple[int, ...] | None, BeforeValidator(_as_list)] = None
    """Seeds."""

    def matches_cell(self, cell: Mapping[str, Any]) -> bool:
        """Return whether a cell is selected: each of its values is among those allowed, or that
        field is null. `cell` has task, mode, protocol, turns and seed."""
        allowed = {name: getattr(self, name) for name in type(self).model_fields}
        return all(some is None or cell[name] in some for name, some in allowed.items())


class CellSettings(Settings):
    """Settings of the cells that match."""

    match: Match
    """The cells."""


class ExperimentSpec(FrozenModel):
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
    subset of complete tasks nearest to it; null takes all."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of questions, conversations and training."""
    model: str | None = None
    """The policy; null takes the default."""
    teacher: str | None = None
    """Model of the other speaker, if a protocol needs one."""
    judges: tuple[str, ...] = Field(min_length=1)
    """Judges; the first one's reward trains. The others score the test split alone, unless a
    recipe's `data.judge` names them."""
    learners: tuple[str, ...] = ()
    """Recipes; `base` is the untrained policy. `NAME:LABEL` is a recipe once more, e.g. at another
    rate: `recipe_sets` has its settings under that name, laid over those of the recipe."""
    policies: tuple[str, ...] = ()
    """Models that are not trained, by any name that `build` takes for a model: each answers the
    cells' test questions in the policy's place, judged alike, and has a row beside the learners."""
    after: dict[str, str | None] = Field(default_factory=dict)
    """Learners that start from another learner's checkpoint in place of the policy's weights, e.g.
    `{"swift:warm": refit}`: both must be in `learners`, the other one first; with sizes it is the
    checkpoint of the same size. Null cancels an entry of an extended file."""
    pooled: tuple[str, ...] = ()
    """Recipes trained once on the logs of all tasks together (`train --run A --run B`), for each
    mode, protocol, length and seed, and evaluated on every task. `recipe_sets` has their settings
    under `pooled-NAME`, laid over those of the recipe; a task's own settings do not apply."""
    count: int | Literal["all"] | None = None
    """Questions per task; null is the task's own number."""
    samples: int = Field(default=3, ge=1)
    """Conversations per question."""
    temperatures: tuple[float, ...] | None = None
    """Temperatures; null takes the defaults."""
    max_tokens: int | None = None
    """Limit of one reply; null takes the default."""
    sets: Sets = Field(default_factory=dict)
    """`--set` of build: dotted keys `task.…` and `protocol.…`."""
    recipe_sets: dict[str, Sets] = Field(default_factory=dict)
    """`--set` of train, by learner; `all` applies to every learner."""
    launch: Sets = Field(default_factory=dict)
    """`--set launch.KEY` of train: keys of the launch files, such as `num_processes`, with their
    values, for every training that has a launcher."""
    per_task: dict[str, Settings] = Field(default_factory=dict)
    """Settings of one task's cells, e.g. paths of its files, laid over the experiment's."""
    per_cell: tuple[CellSettings, ...] = ()
    """Settings of the cells that match, laid in turn over those of their task."""
    devices: Devices = Devices()
    """Devices of policy, teacher, judge and trainer; `--devices` is laid over them."""
    also: tuple[str, ...] = ()
    """Experiments that belong to the same table and are run after this one, in the same folder; a
    cell that both have is one run. `--set` of this one applies to them too, except for what defines
    their cells (tasks, modes, protocols, turns, rows)."""
    printed: bool = False
    """Whether its report sets the papers' printed numbers under ours, as `--paper` does."""
    reference: str | None = None
    """What it reproduces."""

    @field_validator("policies")
    @classmethod
    def _check_policies(cls, policies: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for name in policies if policies.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"found {twice} twice; expected each model once")
        return policies

    @field_validator("pooled")
    @classmethod
    def _check_pooled(cls, pooled: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        tasks = len(info.data.get("tasks", ()))
        if pooled and tasks < 2:
            raise ValueError(f"expected at least 2 tasks; found {tasks}")
        return pooled

    @model_validator(mode="after")
    def _check_after(self) -> Self:
        for learner, other in self.after.items():
            if other is None:
                continue
            if learner not in self.learners:
                raise ValueError(
                    f"after: found {learner}; expected one of learners: {', '.join(self.learners)}"
                )
            before = [
                name for name in self.learners[: self.learners.index(learner)] if name != "base"
            ]
            if other not in before:
                raise ValueError(
                    f"after.{learner}: found {other}; expected a learner that stands before it in "
                    f"learners: {', '.join(before) or 'there is none'}"
                )
        return self

    def scored_split(self, judge: str) -> str | None:
        """Return the split of a log that a judge scores: `test`, which tables show, for one whose
        scores train nothing; None, all of it, for the first one and those of `data.judge`."""
        of_some = [each.recipe_sets for each in (*self.per_task.values(), *self.per_cell)]
        all_sets = [sets for each in (self.recipe_sets, *of_some) for sets in each.values()]
        named = {sets.get("data.judge") for sets in all_sets}
        return None if judge == self.judges[0] or judge in named else "test"

    def start_of(self, learner: str) -> tuple[str, ...]:
        """Return the learners that are trained before this one starts (`after`), nearest first.

        The learner itself is not among them. Empty if it starts from the policy's weights, and for
        an unknown learner.
        """
        learners: list[str] = []
        while (other := self.after.get(learner)) is not None:
            learners.append(learner := other)
        return tuple(learners)

    def sets_of(self, learner: str) -> dict[str, Any]:
        """Return the `--set` of train for one learner, as dotted keys with their values.

        Those for `all`, for its recipe, for it with its label, and for it as a pooled one are
        combined; later ones override earlier ones.
        """
        alone = learner.removeprefix(POOLED)
        names = dict.fromkeys(("all", recipe_of(learner), alone, learner))
        return {
            key: value for name in names for key, value in self.recipe_sets.get(name, {}).items()
        }

    def for_cell(self, **cell: Any) -> Self:
        """Return a copy of the experiment with the settings of one cell, given as task, mode,
        protocol, turns and seed.

        Settings of its task (`per_task`) are laid over the experiment's, then those of each
        matching `per_cell` in order; `sets` and `recipe_sets` are combined key by key.
        """
        own = self.per_task.get(cell["task"])
        layers = [own] if own else []
        layers += [settings for settings in self.per_cell if settings.match.matches_cell(cell)]
        spec = self
        for layer in layers:
            spec = spec.model_copy(update=spec._layer_updates(layer))
        return spec

    def _layer_updates(self, layer: Settings) -> dict[str, Any]:
        """Return the fields that a layer of settings changes."""
        names = ("teacher", "count", "samples", "temperatures", "max_tokens")
        values = {name: getattr(layer, name) for name in names}
        learners = dict.fromkeys([*self.recipe_sets, *layer.recipe_sets])
        mine, theirs = self.recipe_sets, layer.recipe_sets
        return {
            **{name: value for name, value in values.items() if value is not None},
            "sets": {**self.sets, **layer.sets},
            "recipe_sets": {
                name: {**mine.get(name, {}), **theirs.get(name, {})} for name in learners
            },
        }
