"""`init`: a commented spec of one's own, which runs as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from convbench import catalog
from convbench.catalog.scaffold import scaffold
from convbench.errors import SpecError, UsageError
from convbench.options.look import InitOptions
from convbench.store.jsonl import disk_error, write_whole


@dataclass(frozen=True)
class Made:
    """What was written, and what to type next."""

    kind: str
    name: str
    files: tuple[Path, ...]
    next: tuple[str, ...]


def init(options: InitOptions) -> Made:
    """Write the files; SpecError for a name that is none or is taken, and nothing is written. Files
    of a command that was killed are those that it would write now."""
    kind, name = options.kind, options.name
    if options.open and kind != "task":
        raise UsageError(f"--open: found with a {kind}; expected convbench init task NAME --open")
    folder = f"{kind}s"
    if taken := catalog.names(folder, [options.out] if options.out.is_dir() else []).get(name):
        raise SpecError(f"{name}: found {taken} already; expected a new name")
    made = scaffold(kind, name, options.out, "open" if options.open else "")
    for path in made:
        if path.exists() and (not path.is_file() or path.read_bytes() != made[path].encode()):
            raise SpecError(f"{path}: there is a file already; expected a new name")
    for path, text in made.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(path, error) from None
        write_whole(path, text.encode())
    found = "" if options.out.resolve() == Path("specs").resolve() else f" --specs {options.out}"
    commands = [line.replace("NAME", name) + found for line in NEXT[kind]]
    return Made(kind, name, tuple(made), tuple(commands))


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
