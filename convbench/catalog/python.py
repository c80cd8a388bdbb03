"""Python named in specs: `pkg.mod:fn`, from installed packages or an explicit plugin file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convbench.errors import SpecError

FOR_SPECS = ("convbench.tasks.", "convbench.pocket.", "convbench.judge.", "convbench.rollout.")
"""Where the functions lie that specs name; a downloaded spec may name no others."""


def plugin(path: Path) -> None:
    """Load a `--plugin` file, once; its functions are then `STEM:fn`."""
    if not path.is_file():
        raise SpecError(f"--plugin {path}: found no such file")
    there = getattr(sys.modules.get(path.stem), "__file__", None)
    if there is not None and Path(there).resolve() == path.resolve():
        return
    if path.stem in sys.modules:
        raise SpecError(f"--plugin {path}: a module named {path.stem!r} exists; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"--plugin {path}: found no Python file; expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own file may raise anything
        del sys.modules[path.stem]
        raise SpecError(f"--plugin {path}: {type(error).__name__}: {error}") from error


def function(ref: str, *, downloaded: bool = False) -> Callable[..., Any]:
    """Return the function that `pkg.mod:fn` names.

    A downloaded spec may only name what convbench itself ships for specs: specs from elsewhere
    are data, and naming any other function would make them code.
    """
    module_name, _, name = ref.partition(":")
    if downloaded and not module_name.startswith(FOR_SPECS):
        raise SpecError(_downloaded(ref))
    try:
        found = getattr(importlib.import_module(module_name), name)
    except ImportError as error:
        raise SpecError(
            f"{ref}: cannot import {module_name!r}: {error}; install it, or name its file with "
            "--plugin"
        ) from None
    except AttributeError:
        raise SpecError(f"{ref}: module {module_name!r} has no function {name!r}") from None
    if not callable(found):
        raise SpecError(f"{ref}: found {type(found).__name__}; expected a function")
    if downloaded and not str(getattr(found, "__module__", "")).startswith(FOR_SPECS):
        raise SpecError(_downloaded(ref))  # what the module itself imported
    result: Callable[..., Any] = found
    return result


def _downloaded(ref: str) -> str:
    rooms = ", ".join(room + "*" for room in FOR_SPECS)
    return f"{ref}: named by a downloaded spec; expected a function of convbench's own in {rooms}"
