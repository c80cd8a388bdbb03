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
from convbench.options.declare import FlatOption, flat_options, from_flat, option_word
from convbench.options.specs import as_sets

PARAMETERS = "Parameters:"
"""Heading of the options in a docstring."""
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def name_of(option: FlatOption) -> str:
    """Return the keyword of an option in Python: the word of its flag, with underscores."""
    return option_word(option).replace("-", "_")


def keyword_options(options: type[Any], *without: str) -> list[FlatOption]:
    """Return the options that are keywords in Python, those in the class's ORDER first, in its
    order.

    The others follow as declared. Left out are options of the command line only and `without`,
    keywords with underscores.
    """
    return [
        option
        for option in flat_options(options)
        if not option.opt.typed_only and name_of(option) not in without
    ]


def with_options(options: type[Any], *leading: inspect.Parameter) -> Callable[[F], F]:
    """Return a decorator that adds the options of a command to a function's signature and
    docstring.

    The function takes `leading` and arbitrary keywords; it is changed in place and returned. Its
    `__options__` becomes the class. A required option has no default.
    """

    def add_options(function: F) -> F:
        names = [parameter.name for parameter in leading]
        keywords = [
            inspect.Parameter(
                name_of(option),
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if option.is_required else option.default,
                annotation=option.kind,
            )
            for option in keyword_options(options, *names)
        ]
        returns = inspect.signature(function, eval_str=False).return_annotation
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*leading, *keywords], return_annotation=returns
        )
        function.__options__ = options  # type: ignore[attr-defined]
        explained = (line for option in keyword_options(options) for line in _help_lines(option))
        about = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n".join([about, "", PARAMETERS, *explained])
        return function

    return add_options


def _help_lines(option: FlatOption) -> list[str]:
    """Return the help text of an option as lines of a docstring."""
    help_text = option.opt.help.replace("\\[", "[")
    return textwrap.wrap(
        f"{name_of(option)}: {help_text}",
        96,
        initial_indent="    ",
        subsequent_indent="        ",
        break_long_words=False,
    )


def options_of(options: type[T], values: Mapping[str, Any]) -> T:
    """Return an options object from keywords, with the defaults of those that are missing.

    Raises TypeError for an unknown one, a missing required one, or text in place of a number;
    SpecError for a value out of bounds or one that the option's parser refuses.
    """
    known = {name_of(option): option for option in flat_options(options)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise TypeError(f"found no option {', '.join(unknown)}; available: {', '.join(known)}")
    fields = {known[k].name: coerce_value(known[k], v) for k, v in values.items()}
    for name, value in values.items():
        _check_bounds(known[name], value)
    return from_flat(options, fields)


def _check_bounds(option: FlatOption, value: Any) -> None:
    """Raise SpecError for a number beyond an option's bounds, TypeError for text as a number."""
    kinds = {part for part in (option.kind, *get_args(option.kind)) if part is not type(None)}
    words = {word for part in kinds for word in get_args(part)}  # those of a Literal
    if isinstance(value, str) and kinds & {int, float} and str not in kinds and value not in words:
        raise TypeError(f"{name_of(option)}: found {value!r}; expected a number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = option.opt.least, option.opt.most
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if not least <= value <= most:
        expected = f"{least:g} to {most:g}" if high is not None else f"at least {least:g}"
        raise SpecError(f"{name_of(option)}: found {value:g}; expected {expected}")


def coerce_value(option: FlatOption, value: Any) -> Any:
    """Return a value as the option's field holds it: a path from text, a tuple from a single value,
    `--set` pairs from a mapping, or what the option's parser makes of text. Raises SpecError."""
    several = get_origin(option.kind) is tuple
    if isinstance(value, str) and option.opt.parse is not None and not several:
        try:
            return option.opt.parse(value)
        except ValueError as error:
            raise SpecError(f"{name_of(option)}: {error}") from None
    if several and value is not None:
        if isinstance(value, Mapping):
            return as_sets(value)
        inner = get_args(option.kind)[0]
        many = isinstance(value, Iterable) and not isinstance(value, str | bytes | os.PathLike)
        return tuple(_as_path(inner, v) for v in (value if many else (value,)))
    if value is not None and tuple in (get_origin(part) for part in get_args(option.kind)):
        return tuple(value) if isinstance(value, Iterable) else (value,)
    return _as_path(option.kind, value)


def _as_path(kind: Any, value: Any) -> Any:
    paths = kind is Path or Path in get_args(kind)
    return Path(value) if paths and isinstance(value, str | os.PathLike) else value
