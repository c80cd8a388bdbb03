"""Complete names in a shell: specs, models, runs, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from convbench.errors import ConvbenchError
from convbench.options.declare import Names

ROOT = Path("runs")
MOST = 200
"""Largest number of names that are offered."""


def completer(kind: Names) -> Callable[[str], list[str]]:
    """Return a function from the letters typed so far to the names of this kind. It offers nothing
    if a spec is invalid, since there is no room for a message."""

    def complete(incomplete: str) -> list[str]:
        try:
            found = [name for name in _names(kind) if name.startswith(incomplete)]
        except (ConvbenchError, OSError):
            return []
        return found[:MOST]

    return complete


def _names(kind: Names) -> Iterable[str]:
    if kind == "runs":
        return _runs()
    if kind == "policies":
        return [*_checkpoints(), *_models()]
    if kind == "models":
        return _models()
    from convbench import catalog

    if kind == "judges":
        return [*catalog.names("judges"), *_models()]
    if kind == "specs":
        return [
            *catalog.names("tasks"),
            *(f"{one}/{name}" for one in catalog.KINDS for name in catalog.names(one)),
        ]
    return catalog.names(kind)


def _runs() -> list[str]:
    """Return `runs/latest`, the run folders, newest first, then their child runs."""
    links = [str(ROOT / "latest")] if (ROOT / "latest").exists() else []
    found = [path.parent for path in ROOT.glob("*/run.json") if not path.parent.is_symlink()]
    found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    children = [str(path.parent) for run in found for path in run.glob("evals/*/run.json")]
    return [*links, *(str(path) for path in found), *children]


def _checkpoints() -> list[str]:
    found = ROOT.glob("*/checkpoints/*/training.json")
    return [str(path.parent) for path in sorted(found) if not path.parents[2].is_symlink()]


def _models() -> list[str]:
    from convbench.models.aliases import aliases

    return list(aliases(()).models)
