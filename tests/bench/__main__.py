"""`make bench`: every figure with its bound, one table; fails where a bound does not hold.

python -m tests.bench [NAME ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import (
    adaptations,
    batches,
    browser_kills,
    calls,
    cores,
    leaks,
    local,
    real,
    records,
    sandbox,
    scale,
    thinking,
    tools,
    viewer,
)
from tests.bench.bench import Bench, Row

BENCHES: dict[str, Bench] = {
    "help": records.help_time,
    "makespan": calls.makespan,
    "cpu": calls.client_cpu,
    "memory": calls.memory,
    "batches": batches.batches,
    "thinking": thinking.thinking,
    "tools": tools.tools,
    "large": records.large_run,
    "scale": scale.scale,
    "viewer": viewer.viewer,
    "viewer-million": viewer.million,
    "sandbox": sandbox.gradings,
    "browser-kills": browser_kills.kills,
    "adaptations": adaptations.adaptations,
    "local": local.local,
    "real": real.real,
    "leaks": leaks.leaks,
    "cores": cores.cores,
}

LONG = ("verdict", "viewer-million", "browser-kills")
"""Run only where they are named: many minutes, an hour and more."""


def main() -> None:
    """Run the benches named, or all."""
    names = sys.argv[1:] or [name for name in BENCHES if name not in LONG]
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no bench {unknown[0]!r}; there is: {', '.join(BENCHES)}")
    rows: list[Row] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
            for row in BENCHES[name](Path(folder)):
                rows.append(row)
                print(f"{row.what}: {row.value:.3g} {row.unit}", file=sys.stderr)
    Console().print(table(rows))
    sys.exit(0 if all(row.holds for row in rows) else 1)


def table(rows: list[Row]) -> Table:
    """Return the table of all rows."""
    out = Table(box=None, pad_edge=False)
    for head in ("what", "found", "bound", "goal", ""):
        out.add_column(head, justify="left" if head in ("what", "") else "right")
    for row in rows:
        sign = "≥" if row.at_least else "≤"
        out.add_row(
            row.what, f"{row.value:.3g} {row.unit}", f"{sign} {row.bound:g}",
            "" if row.goal is None else f"{sign} {row.goal:g}", "ok" if row.holds else "FAILS",
        )  # fmt: skip
    return out


if __name__ == "__main__":
    main()
