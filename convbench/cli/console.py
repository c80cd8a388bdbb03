"""Where the command line writes: results to stdout, notes and progress to stderr."""

from __future__ import annotations

from rich.console import Console

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)
