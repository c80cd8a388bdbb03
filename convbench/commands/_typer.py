"""Register commands with typer: parse the options, call `run`, and print the answer."""

from __future__ import annotations

import dataclasses
import inspect
import os
import types
import typing
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from convbench.commands._command import AGAIN, CARRIED, Command, EarlyExit, RunContext
from convbench.commands._complete import make_completer
from convbench.commands._config import keys_of_env, option_origin
from convbench.commands._help import fold_tables
from convbench.commands._json import answering_mistakes, print_envelope
from convbench.commands._words import load_command
from convbench.errors import ConvbenchError, RetiredNameWarning, RunError, SpecError
from convbench.options.declare import WHERE, FlatOption, flat_options, from_flat, option_word


def register_command(app: typer.Typer, word: str, panel: str) -> None:
    """Register the command of a word with the typer application."""
    command = load_command(word)
    listed = flat_options(command.options_class)

    def invoke(ctx: typer.Context, **values: Any) -> None:
        context: RunContext = ctx.obj
        context.json, context.show = values.pop(JSON), command.show
        values = {name: value for name, value in values.items() if not name.endswith(OTHER_WAY)}
        failure: BaseException | None = None
        try:
            with _naming_files(), _noting_retired_names(context):
                _note_defaults(context)
                context.answer = command.run(_build_options(command, values, context), context)
        except EarlyExit as ended:
            context.exit_code = ended.exit_code
        except BaseException as error:  # noqa: BLE001 - raised again below
            failure = error
        try:
            with _naming_files():
                context.close()
        finally:
            if context.json:
                print_envelope(context, failure)
        if failure is not None:
            raise failure
        if context.exit_code:
            raise typer.Exit(context.exit_code)

    invoke.__doc__ = _join_lines(command.options_class.__doc__ or "")
    other = [_other_parameter(option) for option in listed if option.opt.either]
    ctx = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [ctx, *map(_make_parameter, listed), *other, _json_parameter()]
    invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    epilog = _examples_text(getattr(command.options_class, "EXAMPLES", ()))
    app.command(word, cls=SingleValueCommand, epilog=epilog, rich_help_panel=panel)(invoke)


def _build_options(command: Command[Any, Any], values: dict[str, Any], context: RunContext) -> Any:
    """Return the options object for the typed values, and a session if the command calls models. If
    an option is declared `each`, `context.each` gets one object for each of its values."""
    named = {option.name: option for option in flat_options(command.options_class)}
    each = next((option for option in named.values() if option.opt.each), None)
    several = values.pop(each.name) if each is not None else None
    options = from_flat(
        command.options_class,
        {name: _parse_value(named[name], value) for name, value in values.items()},
    )
    if getattr(options, "calls", None) is not None:
        from convbench.engine.session import Session

        context.session = Session()
    if each is not None:
        context.each = [
            dataclasses.replace(options, **{each.name: value})
            for value in several or (each.default,)
        ]
    return options


def _note_defaults(context: RunContext) -> None:
    """Add notes on options from files of defaults, and take the keys of `.env`."""
    by_file: dict[str, list[str]] = {}
    for name, value in context.file_values.items():
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        flag = option_word(_find_option(context.word, name))
        by_file.setdefault(option_origin(context.word, name), []).append(f"--{flag} {text}")
    for file, options in by_file.items():
        context.add_note(f"{file}: {', '.join(options)}")
    if taken := keys_of_env():
        context.add_note(f".env: {', '.join(taken)}")
    context.print_notes()  # before the work, which may take hours


def _find_option(word: str, name: str) -> FlatOption:
    return next(
        option for option in flat_options(load_command(word).options_class) if option.name == name
    )


def flags_of(word: str) -> set[str]:
    """Return the flags of a command as a set, such as `--api-base`.

    Arguments are included as if they were flags; `--json`, `--help` and short forms are not.
    """
    return {f"--{option_word(option)}" for option in flat_options(load_command(word).options_class)}


@contextmanager
def _noting_retired_names(context: RunContext) -> Iterator[None]:
    """Add a note for each RetiredNameWarning."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RetiredNameWarning)
        show_other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, RetiredNameWarning):
                show_other(message, category, *where)
            elif str(message) not in context.notes:
                context.add_note(str(message))

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _naming_files() -> Iterator[None]:
    """Raise RunError in one line for an OSError about a file: a name too long, no permission."""
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


def _is_from_file(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _raise_naming_file(ctx: Any, error: typer.BadParameter) -> None:
    """Raise SpecError naming the file if an invalid value comes from a file of defaults."""
    if error.param is not None and _is_from_file(ctx, str(error.param.name)):
        where = option_origin(str(ctx.info_name), str(error.param.name))
        raise SpecError(f"{where}: {error.format_message()}") from None


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _real_paths(value: Any) -> set[Path]:
    return {Path(os.path.realpath(path)) for path in _as_list(value)}


def _take_either(ctx: Any) -> None:
    """Move a run that was typed the other way (argument or `--run`) to the command's parameter. It
    overrides a file's default. Raises BadParameter if both ways name different runs."""
    for name in [name for name in ctx.params if name.endswith(OTHER_WAY)]:
        own, other = name.removesuffix(OTHER_WAY), ctx.params.pop(name)
        if not other:
            continue
        typed = None if _is_from_file(ctx, own) else ctx.params[own]
        if typed and _real_paths(typed) != _real_paths(other):
            if refuse := load_command(str(ctx.info_name)).refuse_runs:
                names = [str(item) for item in (*_as_list(typed), *_as_list(other))]
                refuse(names, ctx.params.get("folders") or ())
            both = " and ".join(" ".join(map(str, _as_list(item))) for item in (typed, other))
            text = f"found {both}, one behind --run and one without; expected each run named once"
            raise typer.BadParameter(text, ctx, param_hint="'--run'")
        ctx.params[own] = other
        ctx.set_parameter_source(own, ctx.get_parameter_source(name))


def _refuse_repeated(ctx: Any, order: Sequence[Any], args: Sequence[str]) -> None:
    """Raise BadParameter if an option with one value was typed twice, or a flag with its opposite:
    the last would count silently. `order` has the parameter of each option as it was typed."""
    for param, times in Counter(order).items():
        if param.param_type_name != "option" or param.multiple:
            continue
        flag = param.opts[0]
        if param.is_flag:
            both = [flags[0] for flags in (param.opts, param.secondary_opts) if {*flags} & {*args}]
            if len(both) == 2:
                text = f"found {both[0]} and {both[1]}; expected one of them"
                raise typer.BadParameter(text, ctx, param_hint=f"'{flag}'")
        elif times > 1:
            form = f": {flag} {param.metavar}" if param.metavar else ""
            text = f"given {times} times; this command takes one{form}"
            raise typer.BadParameter(text, ctx, param_hint=f"'{flag}'")


def _refuse_repeated_keys(ctx: Any, params: Sequence[Any]) -> None:
    """Raise BadParameter if one key of a KEY=VALUE option was typed twice: the last would count."""
    for param in params:
        if param.metavar != KEY_VALUE or _is_from_file(ctx, str(param.name)):
            continue
        for key, times in Counter(
            pair.partition("=")[0] for pair in ctx.params[param.name] or ()
        ).items():
            if times > 1:
                text = f"{key}: given {times} times; expected each key once"
                raise typer.BadParameter(text, ctx, param_hint=f"'{param.opts[0]}'")


class SingleValueCommand(TyperCommand):
    """A command that refuses a second value for an option with one, instead of taking the last."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without cutting any of it."""
        fold_tables()
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command and store its RunContext in `ctx.obj`; return what is left
        of the words.

        Raises click's BadParameter for an option given twice, SpecError for an invalid value in a
        file of defaults; with `--json` the error is printed as a document first.
        """
        with answering_mistakes(str(ctx.info_name), args):
            return self._parse_args(ctx, args)

    def _parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        word = str(ctx.info_name)
        typed = [word, *args]
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        _refuse_repeated(ctx, order, args)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # whose check, not what
            _raise_naming_file(ctx, error)
            raise
        _refuse_repeated_keys(ctx, self.params)
        options = _carried_options(ctx, self.params)
        _take_either(ctx)
        file_values = {name: ctx.params[name] for name in ctx.params if _is_from_file(ctx, name)}
        ctx.obj = RunContext(word, typed, options, flags_of, file_values)
        return rest


def _carried_options(ctx: Any, params: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """Return the typed values of the options in CARRIED and AGAIN by flag. `--judge` of `judge` is
    left out: there it names whom to ask, elsewhere whose verdicts count."""
    options = {}
    for param in params:
        for flag in param.opts:
            if flag in CARRIED + AGAIN and (ctx.info_name, flag) != ("judge", "--judge"):
                values = _as_list(ctx.params.get(param.name))
                options[flag] = tuple(str(value) for value in values if value is not None)
    return options


LOOP = "Symlink loop from "
JSON = "json"
KEY_VALUE = "KEY=VALUE"
"""Metavar of an option that may be repeated, each time with another key."""
OTHER_WAY = "_otherwise"
"""Suffix of the second parameter of an option that is declared `either`."""


def _join_lines(text: str) -> str:
    """Return text with each paragraph on one line, since help is wrapped to the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _examples_text(lines: tuple[str, ...]) -> str | None:
    head = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([head, *(f"  {line}" for line in lines)]) if lines else None


def _make_parameter(option: FlatOption) -> inspect.Parameter:
    default = inspect.Parameter.empty if option.is_required else _shown_default(option)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=_make_annotation(option),
    )


def _other_parameter(option: FlatOption) -> inspect.Parameter:
    """Return the second parameter: `--run` for an argument, an argument for an option."""
    way = (
        {"argument": False, "flag": "--run", "metavar": "DIR", "panel": WHERE}
        if option.opt.argument
        else {"argument": True, "metavar": "RUN", "panel": None}
    )
    help_text = "The same as --run." if way["argument"] else "The same as RUN."
    opt = dataclasses.replace(option.opt, help=help_text, **way)  # type: ignore[arg-type]
    return _make_parameter(dataclasses.replace(option, name=option.name + OTHER_WAY, opt=opt))


def _json_parameter() -> inspect.Parameter:
    flag = typer.Option("--json", help="Print the result as one JSON document.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(JSON, kind, default=False, annotation=Annotated[bool, flag])


def _shown_default(option: FlatOption) -> Any:
    """Return the default on the command line: None for an empty tuple."""
    return None if option.default == () else option.default


def _make_annotation(option: FlatOption) -> Any:
    opt = option.opt
    several = typing.get_origin(option.kind) is tuple
    kind = (
        (str if option.is_required else str | None)
        if opt.parse and not several
        else _typer_type(option.kind)
    )
    if opt.each:
        kind = list[next(k for k in typing.get_args(kind) if k is not types.NoneType)] | None  # type: ignore[misc]
    more: dict[str, Any] = {"help": opt.help, "rich_help_panel": opt.panel}
    if opt.names:
        more["autocompletion"] = make_completer(opt.names)
    if word := opt.metavar or ("" if opt.argument else _metavar_word(option.kind)):
        more["metavar"] = word
    if opt.least is not None:
        more["min"] = opt.least
    if opt.most is not None:
        more["max"] = opt.most
    if opt.argument:
        return Annotated[kind, typer.Argument(**more)]
    return Annotated[kind, typer.Option(*_option_flags(option), **more)]


def _option_flags(option: FlatOption) -> tuple[str, ...]:
    flag = option.opt.flag or "--" + option.name.replace("_", "-")
    long, slash, short = flag.partition("/")
    return (long, short) if slash and short[:2] != "--" else (flag,)


def _typer_type(kind: Any) -> Any:
    """Return the type for typer: a list for several values."""
    if typing.get_origin(kind) is tuple:
        return list[typing.get_args(kind)[0]] | None  # type: ignore[misc]
    return kind


WORDS = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}
"""Metavars in help by type."""


def _metavar_word(kind: Any) -> str:
    """Return the metavar of a type in help; empty for a flag, and for choices, which are listed."""
    first, *more = [part for part in typing.get_args(kind) or (kind,) if part is not types.NoneType]
    several = typing.get_origin(kind) is tuple
    return "" if more and not several else WORDS.get(first, "") + "..." * several


def _parse_value(option: FlatOption, value: Any) -> Any:
    """Return the field's value for a value from typer. Raises BadParameter if it is invalid."""
    several, parse = typing.get_origin(option.kind) is tuple, option.opt.parse
    if several:
        value = tuple(value or ())
    if parse is None or value is None:
        return value
    try:
        return tuple(map(parse, value)) if several else parse(value)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=_option_flags(option)[0]) from None
