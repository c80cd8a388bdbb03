"""What is public stays: every name that users type, import, read or query.

`public.txt` lists them, a line each. What is new is written down by
CONVBENCH_PUBLIC=write pytest tests/house/test_public.py; what is gone fails until a person takes
its line out, with a line in the CHANGELOG.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Container, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args, get_origin

import pytest
import typer

import convbench

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).parent / "public.txt"
RUN = ROOT / "tests" / "fence" / "kept" / "run"
WRITE = os.environ.get("CONVBENCH_PUBLIC") == "write"


def python_names() -> Iterator[str]:
    """Yield what `import convbench` offers: names, arguments of functions, members of classes."""
    for name in convbench.__all__:
        value = getattr(convbench, name)
        yield f"python {name}"
        if inspect.isclass(value):
            yield from (f"python {name}.{one}" for one in dir(value) if one[0] != "_")
        else:
            yield from (f"python {name} {one}" for one in inspect.signature(value).parameters)


def command_line() -> Iterator[str]:
    """Yield every command with its positions, its options and the words they take."""
    from convbench.commands._app import register_commands
    from tests.support.app import app

    register_commands()
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield f"command {name}"
        places = 0
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                places += 1
                more = " and more" if getattr(parameter, "nargs", 1) < 0 else ""
                yield f"command {name} position {places}{more}"
                continue
            taken = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            for flag in (*parameter.opts, *getattr(parameter, "secondary_opts", ())):
                yield f"command {name} {flag}"
                yield from (f"command {name} {flag} {one}" for one in words_of(taken))


def words_of(annotation: Any) -> list[str]:
    """Return the words that an option takes, where it takes no others."""
    if get_origin(annotation) is Literal:
        return [str(one) for one in get_args(annotation)]
    return [word for part in get_args(annotation) for word in words_of(part)]


def spec_fields() -> Iterator[str]:
    """Yield every field of every kind of spec."""
    from docs.generate import spec_models

    for kind, model in spec_models().items():
        yield from fields(f"spec {kind}", model.model_json_schema())


def json_keys() -> Iterator[str]:
    """Yield every key of what `--json` prints."""
    from convbench.commands._json import answer_schema
    from convbench.commands._words import ENTRIES, load_command

    for word in ENTRIES:
        yield from fields(f"json {word}", answer_schema(load_command(word).answer_class))


def fields(prefix: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the properties of a JSON schema and of all its parts, by the part's title."""
    for title, part in {"": schema, **schema.get("$defs", {})}.items():
        for name in part.get("properties", {}):
            yield " ".join(filter(None, (prefix, title, name)))


def columns() -> Iterator[str]:
    """Yield every column of the tables of `query`, as a run shows them."""
    for table in convbench.query("show tables", RUN)["name"]:
        for name in convbench.query(f"describe {table}", RUN)["column_name"]:
            yield f"column {table} {name}"


def records() -> Iterator[str]:
    """Yield every field of the records that lie in a run's files."""
    from convbench.schema import Conversation, Example, RunManifest, Verdict

    for model in (RunManifest, Example, Conversation, Verdict):
        yield from fields(f"record {model.__name__}", model.model_json_schema())


def run_files() -> Iterator[str]:
    """Yield every file of a run that is built, judged, tagged and reported."""
    with TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            run = convbench.build(
                "demo", model="scripted:policy", tasks=2, samples=1, run=f"{folder}/run", tag="one"
            )
            convbench.judge(run, "answer")
        for path in sorted(Path(folder, "run").rglob("*")):
            if path.is_file() and path.suffix != ".lock":
                yield f"file {re.sub('[0-9a-f]{8,}', 'HASH', str(path.relative_to(folder)))}"


def public() -> set[str]:
    """Return all of it."""
    parts = (python_names, command_line, spec_fields, json_keys, columns, records, run_files)
    return {line for part in parts for line in part()}


def gone(listed: Iterable[str], there: Container[str]) -> list[str]:
    """Return what is listed and no longer there."""
    return sorted(line for line in listed if line not in there)


def test_nothing_public_is_gone() -> None:
    there = public()
    if WRITE:
        FILE.write_text("\n".join(sorted(there | set(FILE.read_text().splitlines()))) + "\n")
    lost = gone(FILE.read_text().splitlines(), there)
    assert not lost, "gone; a CHANGELOG line, then take these out of public.txt"


@pytest.mark.parametrize(
    "line",
    [
        "python build",
        "python build protocol",
        "python Run.path",
        "command judge --pairwise",
        "command report --format latex",
        "command judge position 1",
        "spec recipe weighting",
        "record Conversation turns",
        "column conversations correct",
        "file run/conversations.jsonl",
    ],
)
def test_each_kind_of_name_is_listed_and_missed(line: str) -> None:
    listed = FILE.read_text().splitlines()
    assert any(one == line or one.startswith(f"{line} ") for one in listed)
    assert gone(listed, {one for one in listed if not one.startswith(line)})
