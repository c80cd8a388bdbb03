"""Find spec files. A spec exists if its file does; there is no registry."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from convbench.errors import SpecError

KINDS = ("tasks", "protocols", "judges", "recipes", "experiments", "launch")


def shipped_folder() -> Path:
    """Return the folder of the specs that come with convbench, in a wheel or a checkout."""
    package = Path(str(resources.files("convbench")))
    inside = package / "specs"
    return inside if inside.is_dir() else package.parent / "specs"


def spec_folders(extra: Sequence[Path] = ()) -> list[Path]:
    """Return the folders that are searched, in this order: `extra`, `./specs`, the shipped one.
    Raises SpecError if one of `extra` does not exist."""
    for folder in extra:
        if not folder.is_dir():
            raise SpecError(f"--specs {folder}: found no such folder; expected a folder of specs")
    searched: list[Path] = []
    for folder in (*extra, Path("specs"), shipped_folder()):
        if folder.is_dir() and not any(folder.samefile(other) for other in searched):
            searched.append(folder)
    return searched


def spec_files(kind: str, extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the files of all specs of a kind by name; an earlier folder hides a later one."""
    files: dict[str, Path] = {}
    for folder in spec_folders(extra):
        for path in sorted((folder / kind).glob("*.yaml")):
            files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def locate_spec(kind: str, name: str, extra: Sequence[Path] = ()) -> Path:
    """Return the file of a spec, by its name or its path. Raises SpecError if there is none."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise SpecError(f"{name}: found no such file; expected a {kind} spec")
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
