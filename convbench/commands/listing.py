"""`list`: what there is: specs by kind, models by alias, runs here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convbench import catalog
from convbench.errors import ConvbenchError
from convbench.store import Run, all_runs


@dataclass(frozen=True)
class Entry:
    """One line of a list."""

    name: str
    about: str
    where: str = ""


def listing(what: str | None, specs: Sequence[Path]) -> dict[str, list[Entry]]:
    """Return what there is, by kind."""
    found: dict[str, list[Entry]] = {}
    for kind in catalog.KINDS:
        if what in (None, kind):
            found[kind] = [_entry(name, path) for name, path in catalog.names(kind, specs).items()]
    if what in (None, "models"):
        from convbench.models.aliases import aliases

        found["models"] = [
            Entry(name, alias.note or alias.ref or f"retired: {alias.retired}")
            for name, alias in aliases(specs).models.items()
        ]
    if what in (None, "runs"):
        found["runs"] = [_run_entry(run) for run in all_runs()]
    return found


def _entry(name: str, path: Path) -> Entry:
    """Return one spec's line; a file that cannot be read says so in its line."""
    from convbench.catalog.load import extended

    try:
        value = extended(path, path.parent.name, ())
    except ConvbenchError as error:
        return Entry(name, f"cannot be read: {error}", str(path))
    return Entry(name, str(value.get("title", "")), str(path))


def _run_entry(run: Run) -> Entry:
    m = run.manifest
    policy = m.cast[m.protocol.policy].model if m.cast else "imported"
    return Entry(
        str(run.path),
        f"{m.kind} · {m.task.name} · {m.protocol.name} · {m.mode} · {policy}",
        m.created,
    )
