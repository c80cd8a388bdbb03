"""A command of the command line, made from its class of options."""

from __future__ import annotations

import dataclasses
import inspect
import os
import shlex
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from convbench.cli.carried import keep_typed
from convbench.cli.complete import completer
from convbench.cli.defaults import keys_of_env, known, origin
from convbench.cli.envelope import Answer, answering, answering_mistakes
from convbench.cli.main import app, load, panel_of
from convbench.cli.narrow import fold
from convbench.errors import ConvbenchError, RunError, SpecError
from convbench.options.declare import WHERE, Flat, flat, from_flat, said_as

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Any], None])


_typed: list[str] = []
"""The words of the command under way."""


def as_typed(*without: str, **instead: str) -> str:
    """Return the command that was typed, without these flags and with these values of options
    instead of its own: what a user types to go on."""
    flags = {f"--{name}": value for name, value in instead.items()}
    words = ["convbench"]
    for before, word in zip(["", *_typed], _typed, strict=False):
        if word not in without and before not in flags and word.partition("=")[0] not in flags:
            words.append(word)
    words += [part for option in flags.items() for part in option]
    return shlex.join(words)


_filed: list[tuple[str, str, Any]] = []
"""(word, option, value) that a file of defaults gave the command under way."""


def _of_a_file(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _say_whose(ctx: Any, error: typer.BadParameter) -> None:
    """Raise for a wrong value that nobody typed: the file that gives it is what is to be mended."""
    if error.param is not None and _of_a_file(ctx, str(error.param.name)):
        where = origin(str(ctx.info_name), str(error.param.name))
        raise SpecError(f"{where}: {error.format_message()}") from None


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _folders(value: Any) -> set[Path]:
    return {Path(os.path.realpath(one)) for one in _several(value)}


_refuse_runs: dict[str, Callable[[Sequence[str], Sequence[Path]], None]] = {}
"""By word: `refuse_runs` of `command`."""


def _take_either(ctx: Any) -> None:
    """Put a run that was named the other way where the command looks for it. A file's default gives
    way to it; what was typed both ways must be the same."""
    for name in [name for name in ctx.params if name.endswith(OTHER_WAY)]:
        own, other = name.removesuffix(OTHER_WAY), ctx.params.pop(name)
        if not other:
            continue
        typed = None if _of_a_file(ctx, own) else ctx.params[own]
        if typed and _folders(typed) != _folders(other):
            if refuse := _refuse_runs.get(str(ctx.info_name)):
                names = [str(one) for one in (*_several(typed), *_several(other))]
                refuse(names, ctx.params.get("folders") or ())
            both = " and ".join(" ".join(map(str, _several(one))) for one in (typed, other))
            text = f"found {both}, one behind --run and one without; expected each run named once"
            raise typer.BadParameter(text, ctx, param_hint="'--run'")
        ctx.params[own] = other
        ctx.set_parameter_source(own, ctx.get_parameter_source(name))


def _refuse_twice(ctx: Any, order: Sequence[Any], args: Sequence[str]) -> None:
    """Raise for an option that takes one value and was typed with several, and for a flag typed
    with its opposite: the last would count, and nothing would say so. `order` has the parameter of
    each option as it was typed."""
    for param, times in Counter(order).items():
        if param.param_type_name != "option" or param.multiple:
            continue
        flag = param.opts[0]
        if param.is_flag:
            both = [one[0] for one in (param.opts, param.secondary_opts) if {*one} & {*args}]
            if len(both) == 2:
                text = f"found {both[0]} and {both[1]}; expected one of them"
                raise typer.BadParameter(text, ctx, param_hint=f"'{flag}'")
        elif times > 1:
            form = f": {flag} {param.metavar}" if param.metavar else ""
            text = f"given {times} times; this command takes one{form}"
            raise typer.BadParameter(text, ctx, param_hint=f"'{flag}'")


def _refuse_keys_twice(ctx: Any, params: Sequence[Any]) -> None:
    """Raise for an option of KEY=VALUE that was typed with one key twice: the last would count."""
    for param in params:
        if param.metavar != KEY_VALUE or _of_a_file(ctx, str(param.name)):
            continue
        for key, times in Counter(
            one.partition("=")[0] for one in ctx.params[param.name] or ()
        ).items():
            if times > 1:
                text = f"{key}: given {times} times; expected each key once"
                raise typer.BadParameter(text, ctx, param_hint=f"'{param.opts[0]}'")


class OneOfEach(TyperCommand):
    """A command that refuses a second value where it takes one, instead of taking the last."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; nothing of it is cut."""
        fold()
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Count what was typed before it is read, and keep it for `as_typed`."""
        with answering_mistakes(str(ctx.info_name), args):
            return self._parse_args(ctx, args)

    def _parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _typed[:] = [str(ctx.info_name), *args]
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        _refuse_twice(ctx, order, args)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # whose check, not what
            _say_whose(ctx, error)
            raise
        _refuse_keys_twice(ctx, self.params)
        flags = {str(one.name): flag for one in self.params for flag in one.opts}
        keep_typed(str(ctx.info_name), ctx.params, flags, _flags_of)
        _take_either(ctx)
        found = (name for name in ctx.params if _of_a_file(ctx, name))
        _filed[:] = [(str(ctx.info_name), name, ctx.params[name]) for name in found]
        return rest


LOOP = "Symlink loop from "
JSON = "json"
KEY_VALUE = "KEY=VALUE"
"""Metavar of an option that may be repeated, each time with another key."""
OTHER_WAY = "_otherwise"
"""Behind the name of an option: the same, named the other way (`Opt.either`)."""
_options: dict[str, type[Any]] = {}
ANSWERS: dict[str, type[Answer]] = {}
"""What each word gives with `--json`."""


def command(
    name: str,
    options: type[T],
    answer: type[Answer],
    *,
    refuse_runs: Callable[[Sequence[str], Sequence[Path]], None] | None = None,
) -> Callable[[F], F]:
    """Register a function of these options under the word that is typed. Where an option is for
    each of its values (`Opt.each`), the function gets a list of options, one for each. With
    `--json` its answer, which it gives (`envelope.give`), is printed in place of what it says.
    `refuse_runs` gets the names that stand in the place of a run, and the folders of specs, where
    two of them contradict each other: it raises UsageError for what is no run's name."""

    def register(run: F) -> F:
        listed = flat(options)
        named = {one.name: one for one in listed}
        each = next((one for one in listed if one.opt.each), None)

        def typed(**values: Any) -> None:
            values = {key: one for key, one in values.items() if not key.endswith(OTHER_WAY)}
            with answering(name, values.pop(JSON)), _naming_files():
                work(values)

        def work(values: dict[str, Any]) -> None:
            _say_defaults()
            several = values.pop(each.name) if each is not None else None
            asked = from_flat(options, {name: _value(named[name], values[name]) for name in values})
            with _spending(asked) as asked:
                if each is None:
                    run(asked)
                else:
                    both = [{each.name: value} for value in several or (each.default,)]
                    run([dataclasses.replace(asked, **one) for one in both])

        typed.__doc__ = _paragraphs(options.__doc__ or "")
        other = [_other_way(one) for one in listed if one.opt.either]
        parameters = [*(_parameter(one) for one in listed), *other, _json_parameter()]
        typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        typed.__annotations__ = {one.name: one.annotation for one in parameters}
        ANSWERS[name], _options[name] = answer, options
        if refuse_runs is not None:
            _refuse_runs[name] = refuse_runs
        known(name, options)
        epilog = _examples(getattr(options, "EXAMPLES", ()))
        app.command(name, cls=OneOfEach, epilog=epilog, rich_help_panel=panel_of(name))(typed)
        return run

    return register


@contextmanager
def _naming_files() -> Iterator[None]:
    """Say in a line what the system refuses of a file: a name too long, no permission."""
    try:
        yield
    except (ConvbenchError, BrokenPipeError):
        raise
    except OSError as error:
        if error.filename is None:
            raise
        raise RunError(f"{error.filename}: {error.strerror}") from error
    except RuntimeError as error:  # of Path.resolve before Python 3.13
        if not str(error).startswith(LOOP):
            raise
        raise RunError(
            f"{str(error).removeprefix(LOOP)}: found a link that leads to itself"
        ) from None


def _flags_of(word: str) -> set[str]:
    load([word])
    return {f"--{said_as(one)}" for one in flat(_options[word])}


def _say_defaults() -> None:
    """Say what was not typed, and take the keys of `.env`."""
    from convbench.cli.say import note

    by_file: dict[str, list[str]] = {}
    for word, name, value in _filed:
        said = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        flag = said_as(next(one for one in flat(_options[word]) if one.name == name))
        by_file.setdefault(origin(word, name), []).append(f"--{flag} {said}")
    for file, options in by_file.items():
        note(f"{file}: {', '.join(options)}")
    if taken := keys_of_env():
        note(f".env: {', '.join(taken)}")


def _paragraphs(text: str) -> str:
    """Return text with each paragraph on one line: help is broken where the terminal ends."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _spending(options: Any) -> typing.ContextManager[Any]:
    """Give a command that calls models its ledger; say at its end what was spent."""
    calls = getattr(options, "calls", None)
    if calls is None:
        return nullcontext(options)
    from convbench.cli.say import spending

    return spending(dataclasses.replace(options, calls=calls.one_ledger()))


def _examples(lines: tuple[str, ...]) -> str | None:
    head = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([head, *(f"  {line}" for line in lines)]) if lines else None


def _parameter(one: Flat) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.required else _shown(one)
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_annotation(one)
    )


def _other_way(one: Flat) -> inspect.Parameter:
    """Return the option behind `--run` for an argument, the argument for an option."""
    way = (
        {"argument": False, "flag": "--run", "metavar": "DIR", "panel": WHERE}
        if one.opt.argument
        else {"argument": True, "metavar": "RUN", "panel": None}
    )
    said = "The same as --run." if way["argument"] else "The same as RUN."
    opt = dataclasses.replace(one.opt, help=said, **way)  # type: ignore[arg-type]
    return _parameter(dataclasses.replace(one, name=one.name + OTHER_WAY, opt=opt))


def _json_parameter() -> inspect.Parameter:
    flag = typer.Option("--json", help="Print the result as one JSON document.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(JSON, kind, default=False, annotation=Annotated[bool, flag])


def _shown(one: Flat) -> Any:
    """The default on the command line: none where several values start with none."""
    return None if one.default == () else one.default


def _annotation(one: Flat) -> Any:
    opt = one.opt
    several = typing.get_origin(one.kind) is tuple
    kind = (str if one.required else str | None) if opt.parse and not several else _kind(one.kind)
    if opt.each:
        kind = list[next(k for k in typing.get_args(kind) if k is not types.NoneType)] | None  # type: ignore[misc]
    more: dict[str, Any] = {"help": opt.help, "rich_help_panel": opt.panel}
    if opt.names:
        more["autocompletion"] = completer(opt.names)
    if word := opt.metavar or ("" if opt.argument else _word(one.kind)):
        more["metavar"] = word
    if opt.least is not None:
        more["min"] = opt.least
    if opt.most is not None:
        more["max"] = opt.most
    if opt.argument:
        return Annotated[kind, typer.Argument(**more)]
    return Annotated[kind, typer.Option(*_flags(one), **more)]


def _flags(one: Flat) -> tuple[str, ...]:
    flag = one.opt.flag or "--" + one.name.replace("_", "-")
    long, slash, short = flag.partition("/")
    return (long, short) if slash and short[:2] != "--" else (flag,)


def _kind(kind: Any) -> Any:
    """The type as typer takes it: a list for several values."""
    if typing.get_origin(kind) is tuple:
        return list[typing.get_args(kind)[0]] | None  # type: ignore[misc]
    return kind


WORDS = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}
"""What stands in help for a value of a type."""


def _word(kind: Any) -> str:
    """Return what stands in help for a value; empty for a flag, and for choices, which stand there
    themselves."""
    first, *more = [part for part in typing.get_args(kind) or (kind,) if part is not types.NoneType]
    several = typing.get_origin(kind) is tuple
    return "" if more and not several else WORDS.get(first, "") + "..." * several


def _value(one: Flat, found: Any) -> Any:
    """From what typer read to what the field holds."""
    several, parse = typing.get_origin(one.kind) is tuple, one.opt.parse
    if several:
        found = tuple(found or ())
    if parse is None or found is None:
        return found
    try:
        return tuple(map(parse, found)) if several else parse(found)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=_flags(one)[0]) from None
