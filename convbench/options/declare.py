"""How an option is declared, and how a class of options becomes a flat list and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

WHERE, SPECS, MODELS = "Where", "Specs", "Models and calls"
"""Groups of options in `--help`."""

DAY_S = 86_400.0
"""Longest that anything may be waited for, in seconds, where an option says how long."""

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
"""What a shell may offer for an option's value."""

T = TypeVar("T")


@dataclass(frozen=True)
class Opt:
    """One option, declared without typer, which stages and Python do not load.

    `Annotated[TYPE, Opt("What it does.")] = DEFAULT` in an options class. Typer's own has no place
    for what steers Python, files of defaults and completions.
    """

    help: str
    flag: str | None = None
    """On the command line; None makes `--some-name` of the field."""
    metavar: str | None = None
    panel: str | None = None
    least: float | None = None
    most: float | None = None
    argument: bool = False
    """Stands alone on the command line, first in Python."""
    either: bool = False
    """On the command line it may stand alone or behind `--run`, whichever way it is declared."""
    parse: Callable[[str], Any] | None = None
    """From the command line's text to the value, where the type alone does not say; ValueError
    names what was expected."""
    each: bool = False
    """On the command line several times, and the command is done for each value."""
    names: Names | None = None
    """What a shell offers for its value."""
    own_file_only: bool = False
    """Steers where keys go or which code runs: no file of a folder may say it."""
    typed_only: bool = False
    """On the command line alone: what Python says in another way."""


@dataclass(frozen=True)
class Flat:
    """One option of a class, those of its groups included."""

    name: str
    """In Python, and the field."""
    group: str | None
    """The field of the class that holds it; None for the class itself."""
    kind: Any
    """Its type."""
    default: Any
    """`dataclasses.MISSING` where it must be said."""
    opt: Opt

    @property
    def required(self) -> bool:
        """Whether it must be said."""
        return self.default is dataclasses.MISSING


def said_as(one: Flat) -> str:
    """Return the word an option is typed as, without its dashes: `api-base`."""
    return (one.opt.flag or "").partition("/")[0].removeprefix("--") or one.name.replace("_", "-")


def flat(options: type[Any]) -> list[Flat]:
    """Return the options of a class in order: as declared, groups where they stand; what the
    class lists in ORDER goes first."""
    found = list(_fields(options, None))
    first: tuple[str, ...] = getattr(options, "ORDER", ())
    rank = {name: number for number, name in enumerate(first)}
    return sorted(found, key=lambda one: rank.get(one.name, len(first)))


def _fields(options: type[Any], group: str | None) -> Iterator[Flat]:
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            kind, *notes = get_args(hint)
            for opt in notes:
                if isinstance(opt, Opt):
                    yield Flat(field.name, group, kind, field.default, opt)
        elif dataclasses.is_dataclass(hint) and group is None:
            yield from _fields(hint, field.name)  # type: ignore[arg-type]


def from_flat(options: type[T], values: Mapping[str, Any]) -> T:
    """Return an options object of flat values; those not given keep their defaults."""
    own: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for one in flat(options):
        if one.name in values:
            place = own if one.group is None else inside.setdefault(one.group, {})
            place[one.name] = values[one.name]
    hints = get_type_hints(options)
    for group, found in inside.items():
        own[group] = hints[group](**found)
    return options(**own)


def as_words(options: Any) -> list[str]:
    """Return what is typed for an options object, what stands at its default left out: its
    arguments, then flags."""
    arguments: list[str] = []
    flags: list[str] = []
    for one in flat(type(options)):
        holder = options if one.group is None else getattr(options, one.group)
        value = getattr(holder, one.name)
        if value is None or value == one.default or value == ():
            continue
        for each in value if isinstance(value, tuple) else (value,):
            if one.opt.argument:
                arguments.append(str(each))
            else:
                flags += [f"--{said_as(one)}"] if each is True else [f"--{said_as(one)}={each}"]
    return arguments + flags
