"""Find Python functions that specs name: `pkg.mod:fn` in a package, `FILE.py:fn` in a file."""

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
"""Suffix that distinguishes a reference to a file from a module's name."""
FOR_SPECS = ("convbench.tasks.", "convbench.pocket.", "convbench.judges.", "convbench.rollout.")
"""Modules with functions for specs; a downloaded spec may name no others."""


_files: dict[str, Path] = {}
"""Loaded files by the name of their module."""


def load_plugin(path: Path) -> None:
    """Load a `--plugin` file, once; specs then name its functions as `STEM:fn` or `STEM.py:fn`.
    Raises SpecError if it cannot be loaded."""
    if not path.is_file():
        raise SpecError(f"--plugin {path}: found no such file")
    _load_file(path, f"--plugin {path}")


def _load_file(path: Path, origin: str) -> ModuleType:
    """Return the module of a file, loaded once; `origin` names it in errors."""
    loaded = sys.modules.get(path.stem)
    file = getattr(loaded, "__file__", None)
    if loaded is not None and file is not None and Path(file).resolve() == path.resolve():
        return loaded
    if loaded is not None:
        raise SpecError(f"{origin}: a module named {path.stem!r} exists; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"--plugin {path}: found no Python file; expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own file may raise anything
        del sys.modules[path.stem]
        raise SpecError(f"{origin}: {type(error).__name__}: {error}") from error
    _files[path.stem] = path
    return module


def find_function(ref: str, *, downloaded: bool = False) -> Callable[..., Any]:
    """Return the function that `pkg.mod:fn` or `FILE.py:fn` names. A file path is relative to the
    current folder; if there is no such file, it is the `--plugin` of that name.

    A downloaded spec may only name functions that convbench ships for specs: it is data, and naming
    any other function would make it code. Raises SpecError.
    """
    module_name, _, name = ref.rpartition(":")
    if downloaded and (module_name.endswith(FILE) or not module_name.startswith(FOR_SPECS)):
        raise SpecError(_refusal_text(ref))
    try:
        module = (
            _file_module(ref)
            if module_name.endswith(FILE)
            else importlib.import_module(module_name)
        )
    except ImportError as error:
        raise SpecError(
            f"{ref}: cannot import {module_name!r}: {error}; install it, or name its file, "
            f"FILE.py:{name} or --plugin FILE.py"
        ) from None
    target = getattr(module, name, None)
    if target is None:
        raise SpecError(f"{ref}: {module_name!r} has no function {name!r}")
    if not callable(target):
        raise SpecError(f"{ref}: found {type(target).__name__}; expected a function")
    if downloaded and not str(getattr(target, "__module__", "")).startswith(FOR_SPECS):
        raise SpecError(_refusal_text(ref))  # the module imported it from elsewhere
    result: Callable[..., Any] = target
    return result


def _file_module(ref: str) -> ModuleType:
    path = Path(ref.rpartition(":")[0]).expanduser()
    path = path if path.is_file() else _files.get(path.stem, path)
    if not path.is_file():
        raise SpecError(
            f"{ref}: found no file {path} in {Path.cwd()}; go to the folder that it lies in, or "
            f"give its path: --plugin FOLDER/{path.name}"
        )
    return _load_file(path, ref)


def _refusal_text(ref: str) -> str:
    rooms = ", ".join(room + "*" for room in FOR_SPECS)
    return f"{ref}: named by a downloaded spec; expected a function of convbench's own in {rooms}"
