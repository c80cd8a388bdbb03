"""`gold`: draw conversations for people to label, and bring their labels in and out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convbench.errors import UsageError
from convbench.judge.gold import draw as drawing
from convbench.judge.gold.exchange import export, import_labels
from convbench.judge.gold.queue import Queue
from convbench.judge.gold.records import home
from convbench.options.gold import GoldOptions
from convbench.store import Run, find_run

ACTIONS = ("export", "import")


@dataclass
class GoldResult:
    """What `gold` did."""

    run: Run
    """The run whose folder holds the labels."""
    drawn: drawing.DrawResult | None = None
    file: Path | None = None
    exported: int | None = None
    imported: int | None = None
    progress: dict[str, Any] = field(default_factory=dict)


def gold(options: GoldOptions) -> GoldResult:
    """Draw, export, import, or look how far the queue is.

    Raises ConvbenchError subclasses.
    """
    action, path, file = _read(options)
    run = home(find_run(path))
    result = GoldResult(run, file=file)
    if action == "export" and file is not None:
        result.exported = export(run, file, options.rater)
    elif action == "import" and file is not None:
        result.imported = len(import_labels(run, file))
    elif options.draw is not None:
        asked = drawing.Asked(
            options.draw, options.by, options.judge, options.split, options.policy, options.raters,
            options.seed,
        )  # fmt: skip
        result.drawn = drawing.draw(run, asked)
    result.progress = Queue(run).progress()
    return result


def _read(options: GoldOptions) -> tuple[str | None, Path | None, Path | None]:
    """Return (action, run, file) of the words."""
    words = options.words
    if words and words[0] in ACTIONS:
        if len(words) != 2:
            raise UsageError(f"gold {words[0]}: found {len(words) - 1} files; expected one")
        if options.draw is not None:
            raise UsageError(f"gold {words[0]}: found --draw too; expected one at a time")
        return words[0], options.run, Path(words[1])
    if len(words) > 1:
        raise UsageError(f"gold: found {' '.join(words)!r}; expected one run, or export or import")
    if words and options.run is not None and Path(words[0]).resolve() != options.run.resolve():
        raise UsageError(
            f"gold: found {options.run} and {words[0]}, one behind --run and one without; expected "
            "each run named once"
        )
    return None, Path(words[0]) if words else options.run, None
