"""Find spec files. A spec exists if its file does; there is no registry."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from convbench.errors import SpecError

KINDS = ("tasks", "protocols", "judges", "recipes", "experiments", "launch")


def shipped_folder() -> Path:
    """Return the folder of the specs that come with convbench: in the package, else beside it in a
    checkout."""
    package = Path(str(resources.files("convbench")))
    inside = package / "specs"
    return inside if inside.is_dir() else package.parent / "specs"


def spec_folders(extra: Sequence[Path] = ()) -> list[Path]:
    """Return the folders that are searched, in this order: `extra`, `./specs`, the shipped one.

    Those that do not exist, or are named twice, are left out. Raises SpecError if one of `extra` is
    no folder.
    """
    for folder in extra:
        if not folder.is_dir():
            raise SpecError(f"--specs {folder}: found no such folder; expected a folder of specs")
    searched: list[Path] = []
    for folder in (*extra, Path("specs"), shipped_folder()):
        if folder.is_dir() and not any(folder.samefile(other) for other in searched):
            searched.append(folder)
    return searched


def spec_files(kind: str, extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the paths of all `*.yaml` of a kind by file name without suffix, sorted by it; empty
    if none.

    A spec in an earlier folder hides one of that name in a later folder. Raises SpecError as
    `spec_folders` does.
    """
    files: dict[str, Path] = {}
    for folder in spec_folders(extra):
        for path in sorted((folder / kind).glob("*.yaml")):
            files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def locate_spec(kind: str, name: str, extra: Sequence[Path] = ()) -> Path:
    """Return the path of a spec's file, by its name or its path.

    A name with a `/`, or that ends in `.yaml` or `.yml`, is a path from the current folder. Raises
    SpecError if there is no such file or spec; it suggests a similar name.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise SpecError(f"{name}: found no such file; expected a YAML file as in specs/{kind}/")
        return path
    known = spec_files(kind, extra)
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise SpecError(
        f"no spec {name!r} under {kind}; {hint}available: {', '.join(known) or 'nothing'} "
        "(add your own with --specs DIR)"
    )
