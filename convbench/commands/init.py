"""`convbench init`: write a commented spec that runs as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, shell_path
from convbench.errors import SpecError, UsageError
from convbench.options.declare import Opt


@dataclass(frozen=True)
class InitOptions:
    """Write a commented spec of your own that runs as it is, to be changed from there."""

    EXAMPLES: ClassVar = (
        "convbench init task capitals",
        "convbench init task advice --open",
        "convbench init judge brevity",
    )

    kind: Annotated[
        Literal["task", "protocol", "judge", "recipe"], Opt("What to write.", argument=True)
    ]
    name: Annotated[str, Opt("Its name: small letters, digits and dashes.", argument=True)]
    open: Annotated[bool, Opt("A task of questions without options.")] = False
    out: Annotated[Path, Opt("Folder of specs to write it in.", metavar="DIR", typed_only=True)] = (
        Path("specs")
    )


class MadeAnswer(Answer):
    """`init`: the spec that was written."""

    kind: str
    """task, protocol, judge or recipe."""
    name: str
    """Its name."""
    file: str
    """Path of the spec."""


def run(options: InitOptions, context: RunContext) -> MadeAnswer:
    """Write the files of a new spec, add the next commands, and return the path of its YAML.

    Raises SpecError without writing anything if the name is invalid or taken; equal files, left by
    a killed command, do not count as taken. Raises UsageError for `--open` of another kind than a
    task.
    """
    from convbench import catalog
    from convbench.catalog.scaffold import scaffold_files
    from convbench.store.jsonl import disk_error, write_atomic

    kind, name = options.kind, options.name
    if options.open and kind != "task":
        raise UsageError(f"--open: found with a {kind}; expected convbench init task NAME --open")
    folder = f"{kind}s"
    if taken := catalog.spec_files(folder, [options.out] if options.out.is_dir() else []).get(name):
        raise SpecError(f"{name}: found {taken} already; expected a new name")
    files = scaffold_files(kind, name, options.out, "open" if options.open else "")
    for path in files:
        if path.exists() and (not path.is_file() or path.read_bytes() != files[path].encode()):
            raise SpecError(f"{path}: there is a file already; expected a new name")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(path, error) from None
        write_atomic(path, text.encode())
    is_searched = options.out.resolve() == Path("specs").resolve()
    specs = "" if is_searched else f" --specs {shell_path(options.out)}"
    context.add_next(*(line.replace("NAME", name) + specs for line in NEXT[kind]))
    return MadeAnswer(kind=kind, name=name, file=path_text([*files][-1])).with_source([*files])


def show(answer: MadeAnswer) -> None:
    """Print the path of each file that was written, one a line."""
    for path in answer._source:
        print_fact("written", shell_path(path))


NEXT = {
    "task": ("convbench show NAME", "convbench build NAME --model scripted:policy"),
    "protocol": (
        "convbench show protocols/NAME",
        "convbench build demo --protocol NAME --model scripted:policy",
    ),
    "judge": ("convbench show judges/NAME", "convbench judge --judge NAME@claude-opus --dry-run"),
    "recipe": ("convbench show recipes/NAME", "convbench train NAME --dry-run"),
}
"""What to type next, by kind."""


init_command = Command(run, show)
