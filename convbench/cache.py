"""Where what this machine can make again is kept: converted weights, questions that take long."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "CONVBENCH_CACHE"
"""Environment variable: the folder (~/.cache/convbench)."""


def cache_folder(kind: str) -> Path:
    """Return the folder of one kind of things; it may not be there yet."""
    return Path(os.environ.get(CACHE) or "~/.cache/convbench").expanduser() / kind
