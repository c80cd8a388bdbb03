"""Complete names in a shell: specs, models, runs, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from convbench.errors import ConvbenchError
from convbench.options.declare import Names

ROOT = Path("runs")
MOST = 200
"""Largest number of names that are offered."""


def make_completer(kind: Names) -> Callable[[str], list[str]]:
    """Return a function from the letters typed so far to the names of this kind that begin with
    them.

    It returns at most 200, and none if a spec is invalid or a folder cannot be read, since there is
    no room for a message.
    """

    def complete_name(incomplete: str) -> list[str]:
        try:
            names = [name for name in _all_names(kind) if name.startswith(incomplete)]
        except (ConvbenchError, OSError):
            return []
        return names[:MOST]

    return complete_name


def _all_names(kind: Names) -> Iterable[str]:
    if kind == "runs":
        return _run_names()
    if kind == "policies":
        return [*_checkpoint_names(), *_model_names()]
    if kind == "models":
        return _model_names()
    from convbench import catalog

    if kind == "judges":
        return [*catalog.spec_files("judges"), *_model_names()]
    if kind == "specs":
        return [
            *catalog.spec_files("tasks"),
            *(
                f"{spec_kind}/{name}"
                for spec_kind in catalog.KINDS
                for name in catalog.spec_files(spec_kind)
            ),
        ]
    return catalog.spec_files(kind)


def _run_names() -> list[str]:
    """Return `runs/latest`, the run folders, newest first, then their child runs."""
    links = [str(ROOT / "latest")] if (ROOT / "latest").exists() else []
    folders = [path.parent for path in ROOT.glob("*/run.json") if not path.parent.is_symlink()]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    children = [str(path.parent) for run in folders for path in run.glob("evals/*/run.json")]
    return [*links, *(str(path) for path in folders), *children]


def _checkpoint_names() -> list[str]:
    files = ROOT.glob("*/checkpoints/*/training.json")
    return [str(path.parent) for path in sorted(files) if not path.parents[2].is_symlink()]


def _model_names() -> list[str]:
    from convbench.models.aliases import aliases

    return list(aliases(()).models)
