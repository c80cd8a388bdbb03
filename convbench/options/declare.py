"""Declare options, and convert a class of options to a flat list and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

WHERE, SPECS, MODELS = "Where", "Specs", "Models and calls"
"""Groups of options in `--help`."""

DAY_S = 86_400.0
"""Largest number of seconds for options that say how long to wait."""

Names = Literal[
    "tasks",
    "protocols",
    "judges",
    "recipes",
    "experiments",
    "launch",
    "specs",
    "models",
    "policies",
    "runs",
]
"""Kinds of names that a shell can complete for an option's value."""

T = TypeVar("T")


@dataclass(frozen=True)
class Opt:
    """An option, declared as `Annotated[TYPE, Opt("What it does.")] = DEFAULT` in a class.

    Independent of typer, which stages and Python do not load and which has no fields for Python,
    files of defaults and completions.
    """

    help: str
    flag: str | None = None
    """The flag on the command line; None makes it `--some-name` from the field."""
    metavar: str | None = None
    panel: str | None = None
    least: float | None = None
    most: float | None = None
    argument: bool = False
    """Positional on the command line, and first in Python."""
    either: bool = False
    """On the command line both positional and behind `--run`, whichever way it is declared."""
    parse: Callable[[str], Any] | None = None
    """Converts the command line's text to the value if the type is not enough; raises ValueError
    naming what was expected."""
    each: bool = False
    """Repeatable on the command line; the command runs once for each value."""
    names: Names | None = None
    """Kind of names that a shell completes for its value."""
    own_file_only: bool = False
    """Controls where keys go or which code runs, so that a folder's file may not set it."""
    typed_only: bool = False
    """On the command line only; Python has another way."""


@dataclass(frozen=True)
class FlatOption:
    """One option in the flat list of a class, which includes those of its groups."""

    name: str
    """Name of the field."""
    group: str | None
    """Field of the class that holds its group; None for an option of the class itself."""
    kind: Any
    """Its type."""
    default: Any
    """`dataclasses.MISSING` if it is required."""
    opt: Opt

    @property
    def is_required(self) -> bool:
        """Return True if it has no default."""
        return self.default is dataclasses.MISSING


def option_word(option: FlatOption) -> str:
    """Return the word of an option's flag without dashes: `api-base`; of `--private/--public` the
    first.

    Without a flag of its own it is the field's name with dashes.
    """
    return (option.opt.flag or "").partition("/")[0].removeprefix("--") or option.name.replace(
        "_", "-"
    )


def flat_options(options: type[Any]) -> list[FlatOption]:
    """Return the options of a class, those in its ORDER first and in its order, the others as
    declared.

    Options of its groups (fields that are dataclasses) are included in their place; fields without
    an `Opt` are not.
    """
    declared = list(_iter_options(options, None))
    first: tuple[str, ...] = getattr(options, "ORDER", ())
    rank = {name: number for number, name in enumerate(first)}
    return sorted(declared, key=lambda option: rank.get(option.name, len(first)))


def _iter_options(options: type[Any], group: str | None) -> Iterator[FlatOption]:
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            kind, *notes = get_args(hint)
            for opt in notes:
                if isinstance(opt, Opt):
                    yield FlatOption(field.name, group, kind, field.default, opt)
        elif dataclasses.is_dataclass(hint) and group is None:
            yield from _iter_options(hint, field.name)  # type: ignore[arg-type]


def from_flat(options: type[T], values: Mapping[str, Any]) -> T:
    """Return an options object from values by field name, those of groups included; missing ones
    get defaults.

    Names of no option are ignored. Raises TypeError if a required option is missing.
    """
    own: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for option in flat_options(options):
        if option.name in values:
            holder = own if option.group is None else inside.setdefault(option.group, {})
            holder[option.name] = values[option.name]
    hints = get_type_hints(options)
    for group, group_values in inside.items():
        own[group] = hints[group](**group_values)
    return options(**own)
