"""`list`: what there is: specs by kind, models by alias, runs here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from convbench import catalog
from convbench.errors import ConvbenchError, RunError, UsageError
from convbench.options.look import ListOptions
from convbench.store.overview import Overview, overview
from convbench.store.run import Run

ROOT = Path("runs")


@dataclass(frozen=True)
class Entry:
    """One spec or model."""

    name: str
    about: str
    where: str = ""


@dataclass
class Listing:
    """What there is."""

    specs: dict[str, list[Entry]] = field(default_factory=dict)
    """Specs and models by kind."""
    runs: list[Overview] | None = None
    """Runs here, the newest first; None where they were not asked for."""
    untagged: int = 0
    """Runs here that have not all the tags that were asked for."""
    notes: list[str] = field(default_factory=list)
    """Runs that cannot be read."""


def listing(options: ListOptions) -> Listing:
    """Return what there is, by kind."""
    what, specs, found = options.what, options.specs, Listing()
    for kind in catalog.KINDS:
        if what in (None, kind) and not options.tags:
            found.specs[kind] = [_entry(n, path) for n, path in catalog.names(kind, specs).items()]
    if what in (None, "models") and not options.tags:
        found.specs["models"] = _models(specs)
    if what in (None, "runs") or options.tags:
        if options.tags and what not in (None, "runs"):
            raise UsageError(f"--tag: found with `list {what}`; expected `list runs`")
        _runs(found, set(options.tags))
    return found


def _models(specs: Sequence[Path]) -> list[Entry]:
    from convbench.models.aliases import aliases

    return [
        Entry(name, alias.note or alias.ref or f"retired: {alias.retired}")
        for name, alias in aliases(specs).models.items()
    ]


def _entry(name: str, path: Path) -> Entry:
    """Return one spec's line; a file that cannot be read says so in its line."""
    from convbench.catalog.load import extended

    try:
        value = extended(path, path.parent.name, ())
    except ConvbenchError as error:
        return Entry(name, f"cannot be read: {error}", str(path))
    return Entry(name, str(value.get("title", "")), str(path))


def _runs(found: Listing, tags: set[str]) -> None:
    """Look at every run here; one that cannot be read is told and does not hide the others."""
    runs: list[Overview] = []
    folders = sorted(ROOT.iterdir()) if ROOT.is_dir() else []
    for path in folders:
        if path.is_symlink() or not (path / "run.json").exists():
            continue
        try:
            one = overview(Run.open(path))
        except RunError as error:
            found.notes.append(str(error))
            continue
        if tags <= set(one.label.tags):
            runs.append(one)
        else:
            found.untagged += 1
    found.runs = sorted(runs, key=_born, reverse=True)


def _born(one: Overview) -> tuple[str, int]:
    """When a run was made: the record tells seconds, the file what is between them."""
    return one.run.manifest.created, (one.run.path / "run.json").stat().st_mtime_ns


def newest() -> Path | None:
    """Return what `runs/latest` points to."""
    link = ROOT / "latest"
    return link.resolve() if link.exists() else None
