"""`convbench list`: list specs and models by kind, and runs with their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from rich.table import Table
from rich.text import Text

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import out, path_text, print_table, quoted
from convbench.errors import ConvbenchError, RunError
from convbench.options.declare import Opt
from convbench.options.shared import SpecFolders
from convbench.util.printable import make_printable

if TYPE_CHECKING:
    from convbench.store.overview import RunOverview

ROOT = Path("runs")
What = Literal["tasks", "protocols", "judges", "models", "recipes", "experiments", "launch", "runs"]


@dataclass(frozen=True)
class ListOptions:
    """List specs by kind, models by alias, and the runs in this folder."""

    EXAMPLES: ClassVar = (
        "convbench list tasks",
        "convbench list runs",
    )

    what: Annotated[What | None, Opt("Which kind; without it all.", argument=True)] = None
    specs: SpecFolders = ()


class RunRow(Answer):
    """One run."""

    run: str
    """Its folder."""
    kind: str
    """How it was made: build, import, …"""
    task: str
    """The task."""
    mode: str
    """thinking or standard."""
    policy: str
    """Reference of the policy."""
    conversations: int
    """Number of completed conversations."""
    failed: int
    """Number of conversations that ended in a recorded failure."""
    judges: list[str]
    """Names of the judges that scored it."""
    evals: int
    """Number of child runs."""
    usd: float | None
    """Cost of its calls, judges included; null if a price is unknown."""
    created: str
    """UTC time of creation."""
    latest: bool
    """Whether `runs/latest` points to it."""


class SpecRow(Answer):
    """One spec or model."""

    name: str
    """Its name."""
    about: str
    """Its title."""
    file: str
    """Path of the file; empty for a model."""


class ListAnswer(Answer):
    """`list`: specs, models and runs."""

    specs: dict[str, list[SpecRow]]
    """Specs and models by kind."""
    runs: list[RunRow]
    """Runs, newest first."""


def run(options: ListOptions, context: RunContext) -> ListAnswer:
    """Return specs and models by kind, then runs in `runs`, newest first; with `what` only those.

    A run that cannot be read becomes a note.
    """
    from convbench import catalog

    what, specs = options.what, options.specs
    by_kind: dict[str, list[SpecRow]] = {}
    for kind in catalog.KINDS:
        if what in (None, kind):
            names = catalog.spec_files(kind, specs)
            by_kind[kind] = [_spec_row(name, path) for name, path in names.items()]
    if what in (None, "models"):
        by_kind["models"] = _model_rows(specs)
    has_runs = what in (None, "runs")
    runs = _run_rows(context) if has_runs else []
    with_records = next((row for row in runs if row.conversations), None)
    if not has_runs:
        context.add_next(
            "convbench show demo", "convbench build demo --model scripted:policy --dry-run"
        )
    elif with_records is not None:
        name = quoted(with_records.run)
        context.add_next(f"convbench report {name}", f"convbench view {name}")
    else:
        context.add_next("convbench build demo --model scripted:policy")
    return ListAnswer(specs=by_kind, runs=runs).with_source(has_runs)


def _model_rows(specs: Sequence[Path]) -> list[SpecRow]:
    from convbench.models.aliases import aliases

    return [
        SpecRow(name=name, about=alias.note or alias.ref or f"retired: {alias.retired}", file="")
        for name, alias in aliases(specs).models.items()
    ]


def _spec_row(name: str, path: Path) -> SpecRow:
    """Return the row of one spec; an unreadable file has the error in place of its title."""
    from convbench.catalog.load import read_extended

    try:
        about = str(read_extended(path, path.parent.name, ()).get("title", ""))
    except ConvbenchError as error:
        about = f"cannot be read: {error}"
    return SpecRow(name=name, about=about, file=str(path))


def _run_rows(context: RunContext) -> list[RunRow]:
    """Return the runs here, newest first. A run that cannot be read becomes a note."""
    from convbench.store.overview import read_overview
    from convbench.store.run import Run

    runs: list[RunOverview] = []
    for path in sorted(ROOT.iterdir()) if ROOT.is_dir() else []:
        if path.is_symlink() or not (path / "run.json").exists():
            continue
        try:
            runs.append(read_overview(Run.open(path)))
        except RunError as error:
            context.add_note(str(error))
    link = ROOT / "latest"
    latest = link.resolve() if link.exists() else None
    return [_run_row(seen, latest) for seen in sorted(runs, key=_creation_order, reverse=True)]


def _creation_order(seen: RunOverview) -> tuple[str, int]:
    """Return a sort key for the time of creation: the record has seconds, the file fractions."""
    return seen.run.manifest.created, (seen.run.path / "run.json").stat().st_mtime_ns


def _run_row(seen: RunOverview, latest: Path | None) -> RunRow:
    manifest = seen.run.manifest
    return RunRow(
        run=path_text(seen.run.path),
        kind=manifest.kind,
        task=manifest.task.name,
        mode=manifest.mode,
        policy=seen.policy,
        conversations=seen.conversations,
        failed=seen.failed,
        judges=list(seen.judges),
        evals=seen.evals,
        usd=seen.usd,
        created=manifest.created,
        latest=seen.run.path.resolve() == latest,
    )


def show(answer: ListAnswer) -> None:
    """Print one table for each kind, then the runs."""
    has_runs: bool = answer._source
    alone = len(answer.specs) + has_runs == 1
    for kind, entries in answer.specs.items():
        if not entries and not alone:
            continue
        rows = Table(box=None, pad_edge=False, title_justify="left", show_header=False)
        rows.add_column(no_wrap=True, style="bold", overflow="fold")
        rows.add_column(overflow="fold")
        for entry in entries:
            rows.add_row(Text(make_printable(entry.name)), Text(make_printable(entry.about)))
        out.print(f"[underline]{kind}[/]")
        if entries:
            print_table(rows)
        else:
            out.print("none here")
        out.print()
    if answer.runs:
        out.print("[underline]runs[/]")
        _show_runs(answer.runs)
    elif has_runs and alone:
        out.print("[underline]runs[/]")
        out.print("none here")


def _show_runs(runs: Sequence[RunRow]) -> None:
    """Print runs, newest first, on one line each, or two if the terminal is too narrow."""
    from rich.cells import cell_len
    from rich.padding import Padding

    lines = [(_run_name(row), *_run_facts(row)) for row in runs]
    rows = Table(box=None, pad_edge=False)
    heads = ("run", *RUN_HEADS)
    wide = sum(max(cell_len(str(c)) for c in col) + 1 for col in zip(heads, *lines, strict=True))
    if out.is_terminal and wide > out.width:
        for line in lines:
            facts = " · ".join(
                f"{head} {cell}" if head in NAMED else cell
                for head, cell in zip(RUN_HEADS, line[1:], strict=True)
                if cell
            )
            out.print(Text(line[0], style="bold"), soft_wrap=True)
            out.print(Padding(Text(facts, style="dim"), (0, 0, 0, 2)))
        return
    for head in heads:
        rows.add_column(head, no_wrap=True, justify="right" if head in COUNTS else "left")
    for line in lines:
        rows.add_row(Text(line[0], style="bold"), *(Text(cell) for cell in line[1:]))
    print_table(rows)


RUN_HEADS = ("what", "policy", "complete", "failed", "judges", "evals", "cost", "age")
COUNTS = ("complete", "failed", "evals", "cost", "age")
"""Columns of numbers."""
NAMED = ("complete", "failed", "evals")
"""Facts that need their head outside a table."""


def _run_name(row: RunRow) -> str:
    return make_printable(quoted(row.run)) + (" (latest)" if row.latest else "")


def _run_facts(row: RunRow) -> tuple[str, ...]:
    kind = "" if row.kind == "build" else f"{row.kind} "
    cost = "$?" if row.usd is None else f"${row.usd:,.2f}" if row.usd else "$0"
    cells = (
        f"{kind}{row.task} {row.mode}",
        row.policy,
        str(row.conversations),
        str(row.failed or ""),
        " ".join(row.judges),
        str(row.evals or ""),
        cost,
        _format_age(row.created),
    )
    return tuple(make_printable(cell) for cell in cells)


def _format_age(created: str) -> str:
    """Return how long ago a UTC time was, in the largest unit: `3d`, `2h`."""
    try:
        then = datetime.fromisoformat(created)
    except ValueError:
        return "?"
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = max(0.0, (datetime.now(UTC) - then).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


list_command = Command(run, show)
