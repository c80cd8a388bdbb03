"""An option that takes one value refuses a second one: the last would count in silence."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
import typer

from tests.helpers.typed import Typist

WORDS = ["demo", "swift", "get", "task", "mine", "logs.jsonl"]
"""What stands for arguments; no more is read of it before the options are counted."""


def commands() -> dict[str, click.Command]:
    from convbench.commands._app import register_commands
    from tests.support.app import app

    register_commands()
    return typer.main.get_command(app).commands  # type: ignore[attr-defined,no-any-return]


def options(multiple: bool) -> Iterator[tuple[str, str, int]]:
    """Yield command, flag and number of values of every option that takes values."""
    for word, command in commands().items():
        for one in command.params:
            takes = one.param_type_name == "option" and not one.is_flag  # type: ignore[attr-defined]
            if takes and one.multiple is multiple:  # type: ignore[attr-defined]
                yield word, one.opts[0], one.nargs


def complaint(word: str, *typed: str) -> str:
    """Return what is said of a command as it was typed; empty where it can be parsed."""
    try:
        commands()[word].make_context(word, list(typed))
    except (typer.BadParameter, click.ClickException) as error:
        return error.format_message()
    except Exception as error:  # refused further on, by what reads the value
        return str(error)
    return ""


def test_every_option_of_one_value_is_typed_once() -> None:
    found = list(options(multiple=False))
    assert len(found) > 100
    for word, flag, many in found:
        values = ["v"] * many
        said = complaint(word, flag, *values, flag, *values)
        assert "given 2 times; this command takes one" in said, (word, flag, said)
        assert "given" not in complaint(word, flag, *values), (word, flag)


def test_what_takes_several_values_takes_them() -> None:
    found = list(options(multiple=True))
    assert len(found) > 10
    for word, flag, _ in found:
        assert "given" not in complaint(word, flag, "a=1", flag, "b=2"), (word, flag)


@pytest.mark.parametrize("typed", [
    "build demo --temperatures 0.3 --temperatures 0.7",
    "build demo --model scripted:policy --model=scripted:teacher",
    "build demo --model scripted:policy --budget 1 --budget 100",
    "build demo --model scripted:policy --set task.sample.train=0.5 --set task.sample.train=0.9",
    "build demo --model scripted:policy --devices policy=[0] --devices policy=[1]",
    "train swift --judge rules --judge human",
    "publish me/set --private --public",
    "view --no-open --open",
])  # fmt: skip
def test_a_second_value_ends_with_a_line(typed: str, typist: Typist) -> None:
    said = typist(*typed.split())
    assert (said.code, said.out) == (2, "")
    found = typist.json(*typed.split())
    assert found["exit_code"] == 2
    assert re.search(r"given 2 times; |found --\S+ and --\S+; expected one", found["error"])


def test_flags_twice_and_other_keys_are_no_slip(typist: Typist) -> None:
    words = "build demo --model scripted:policy --dry-run --dry-run -q"
    keys = "--set task.sample.train=0.5 --set task.sample.validation=0.1"
    said = typist(*words.split(), *keys.split())
    assert said.code == 0, said.err
