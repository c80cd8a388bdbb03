"""Where the command line writes: results to stdout, notes and progress to stderr."""

from __future__ import annotations

from convbench.terminal import Terminal

err = Terminal(stderr=True, highlight=False)
out = Terminal(highlight=False)
