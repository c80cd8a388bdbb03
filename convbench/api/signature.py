"""Give functions the options of their command as keywords, and build options from a call."""

from __future__ import annotations

import inspect
import math
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from convbench.errors import SpecError
from convbench.options.declare import Flat, flat, from_flat, said_as
from convbench.options.specs import as_sets

PARAMETERS = "Parameters:"
"""Heading of the options in a docstring."""
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def name_of(one: Flat) -> str:
    """Return the keyword of an option in Python: the word of its flag, with underscores."""
    return said_as(one).replace("-", "_")


def listed(options: type[Any], *without: str) -> list[Flat]:
    """Return the options that are keywords in Python, but those named in `without`."""
    return [one for one in flat(options) if not one.opt.typed_only and name_of(one) not in without]


def verb(options: type[Any], *leading: inspect.Parameter) -> Callable[[F], F]:
    """Return a decorator that adds the options of a command to the signature and the docstring of a
    function with the parameters `leading` and arbitrary keywords."""

    def give(function: F) -> F:
        names = [parameter.name for parameter in leading]
        keywords = [
            inspect.Parameter(
                name_of(one),
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if one.required else one.default,
                annotation=one.kind,
            )
            for one in listed(options, *names)
        ]
        returns = inspect.signature(function, eval_str=False).return_annotation
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*leading, *keywords], return_annotation=returns
        )
        function.__options__ = options  # type: ignore[attr-defined]
        explained = (line for one in listed(options) for line in _explained(one))
        about = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n".join([about, "", PARAMETERS, *explained])
        return function

    return give


def _explained(one: Flat) -> list[str]:
    """Return the help text of an option as lines of a docstring."""
    told = one.opt.help.replace("\\[", "[")
    return textwrap.wrap(
        f"{name_of(one)}: {told}",
        96,
        initial_indent="    ",
        subsequent_indent="        ",
        break_long_words=False,
    )


def options_of(options: type[T], values: Mapping[str, Any]) -> T:
    """Return an options object from keywords. Raises TypeError for an unknown one or a wrong type,
    SpecError for a value out of bounds."""
    known = {name_of(one): one for one in flat(options)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise TypeError(f"found no option {', '.join(unknown)}; there is: {', '.join(known)}")
    said = {known[k].name: coerced(known[k], v) for k, v in values.items()}
    for name, value in values.items():
        _check_bounds(known[name], value)
    return from_flat(options, said)


def _check_bounds(one: Flat, value: Any) -> None:
    """Raise SpecError for a number beyond an option's bounds, TypeError for text as a number."""
    kinds = {part for part in (one.kind, *get_args(one.kind)) if part is not type(None)}
    if isinstance(value, str) and kinds & {int, float} and str not in kinds:
        raise TypeError(f"{name_of(one)}: found {value!r}; expected a number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = one.opt.least, one.opt.most
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if not least <= value <= most:
        expected = f"{least:g} to {most:g}" if high is not None else f"at least {least:g}"
        raise SpecError(f"{name_of(one)}: found {value:g}; expected {expected}")


def coerced(one: Flat, value: Any) -> Any:
    """Return a value as the option's field holds it: a path from text, a tuple from a single value,
    `--set` pairs from a mapping, or what the option's parser makes of text. Raises SpecError."""
    several = get_origin(one.kind) is tuple
    if isinstance(value, str) and one.opt.parse is not None and not several:
        try:
            return one.opt.parse(value)
        except ValueError as error:
            raise SpecError(f"{name_of(one)}: {error}") from None
    if several and value is not None:
        if isinstance(value, Mapping):
            return as_sets(value)
        inner = get_args(one.kind)[0]
        many = isinstance(value, Iterable) and not isinstance(value, str | bytes | os.PathLike)
        return tuple(_one(inner, v) for v in (value if many else (value,)))
    if value is not None and tuple in (get_origin(part) for part in get_args(one.kind)):
        return tuple(value) if isinstance(value, Iterable) else (value,)
    return _one(one.kind, value)


def _one(kind: Any, value: Any) -> Any:
    paths = kind is Path or Path in get_args(kind)
    return Path(value) if paths and isinstance(value, str | os.PathLike) else value
