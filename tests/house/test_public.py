"""What is public stays: every name that users type, import, read or query.

`public.txt` lists them, a line each. A name that is new is written down by
CONVBENCH_PUBLIC=write pytest tests/house/test_public.py; one that is gone fails until a person
takes its line out, with a line in the CHANGELOG.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import convbench

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).parent / "public.txt"
RUN = ROOT / "tests" / "fence" / "kept" / "run"
WRITE = os.environ.get("CONVBENCH_PUBLIC") == "write"


def python_names() -> Iterator[str]:
    """Yield what `import convbench` offers."""
    for name in convbench.__all__:
        yield f"python {name}"


def command_line() -> Iterator[str]:
    """Yield every command with each of its options."""
    from convbench.cli import app
    from convbench.cli.main import load

    load()
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield f"command {name}"
        for parameter in command.params:
            for flag in getattr(parameter, "opts", ()):
                yield f"command {name} {flag}"


def spec_fields() -> Iterator[str]:
    """Yield every field of every kind of spec."""
    from docs.generate import spec_models

    for kind, model in spec_models().items():
        yield from fields(f"spec {kind}", model.model_json_schema())


def json_keys() -> Iterator[str]:
    """Yield every key of what `--json` prints."""
    from convbench.cli.command import ANSWERS
    from convbench.cli.envelope import schema

    for name, answer in ANSWERS.items():
        yield from fields(f"json {name}", schema(answer))


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


def public() -> set[str]:
    """Return all of it."""
    parts = (python_names, command_line, spec_fields, json_keys, columns, records)
    return {line for part in parts for line in part()}


def test_nothing_public_is_gone() -> None:
    there = public()
    if WRITE:
        FILE.write_text("\n".join(sorted(there | set(FILE.read_text().splitlines()))) + "\n")
    listed = set(FILE.read_text().splitlines())
    assert not listed - there, "gone; a CHANGELOG line, then take these out of public.txt"
    assert not there - listed, "new; write them down (see this file's first lines)"
