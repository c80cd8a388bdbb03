"""Python named in specs: `pkg.mod:fn` of installed packages, `FILE.py:fn` of a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from convbench.errors import SpecError

FILE = ".py"
"""How the name of a file ends, which the name of a module never does."""
FOR_SPECS = ("convbench.tasks.", "convbench.pocket.", "convbench.judge.", "convbench.rollout.")
"""Where the functions lie that specs name; a downloaded spec may name no others."""


_files: dict[str, Path] = {}
"""Files that were loaded, by the name of their module."""


def plugin(path: Path) -> None:
    """Load a `--plugin` file, once; its functions are then `STEM:fn` and `STEM.py:fn`."""
    if not path.is_file():
        raise SpecError(f"--plugin {path}: found no such file")
    _load(path, f"--plugin {path}")


def _load(path: Path, said: str) -> ModuleType:
    """Return the module of a file, which is run once; `said` names it in errors."""
    there = sys.modules.get(path.stem)
    file = getattr(there, "__file__", None)
    if there is not None and file is not None and Path(file).resolve() == path.resolve():
        return there
    if there is not None:
        raise SpecError(f"{said}: a module named {path.stem!r} exists; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"--plugin {path}: found no Python file; expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own file may raise anything
        del sys.modules[path.stem]
        raise SpecError(f"{said}: {type(error).__name__}: {error}") from error
    _files[path.stem] = path
    return module


def function(ref: str, *, downloaded: bool = False) -> Callable[..., Any]:
    """Return the function that `pkg.mod:fn` or `FILE.py:fn` names. A file is looked for from the
    folder one is in; where it is not there, it is the `--plugin` of that name.

    A downloaded spec may only name what convbench itself ships for specs: specs from elsewhere
    are data, and naming any other function would make them code.
    """
    place, _, name = ref.rpartition(":")
    if downloaded and (place.endswith(FILE) or not place.startswith(FOR_SPECS)):
        raise SpecError(_downloaded(ref))
    try:
        module = _of_file(ref) if place.endswith(FILE) else importlib.import_module(place)
    except ImportError as error:
        raise SpecError(
            f"{ref}: cannot import {place!r}: {error}; install it, or name its file, "
            f"FILE.py:{name} or --plugin FILE.py"
        ) from None
    found = getattr(module, name, None)
    if found is None:
        raise SpecError(f"{ref}: {place!r} has no function {name!r}")
    if not callable(found):
        raise SpecError(f"{ref}: found {type(found).__name__}; expected a function")
    if downloaded and not str(getattr(found, "__module__", "")).startswith(FOR_SPECS):
        raise SpecError(_downloaded(ref))  # what the module itself imported
    result: Callable[..., Any] = found
    return result


def _of_file(ref: str) -> ModuleType:
    path = Path(ref.rpartition(":")[0]).expanduser()
    path = path if path.is_file() else _files.get(path.stem, path)
    if not path.is_file():
        raise SpecError(
            f"{ref}: found no file {path} in {Path.cwd()}; go to the folder that it lies in, or "
            f"say where it is: --plugin FOLDER/{path.name}"
        )
    return _load(path, ref)


def _downloaded(ref: str) -> str:
    rooms = ", ".join(room + "*" for room in FOR_SPECS)
    return f"{ref}: named by a downloaded spec; expected a function of convbench's own in {rooms}"
