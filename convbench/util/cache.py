"""The cache folder, for what can be made again: drawn questions, indexes."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "CONVBENCH_CACHE"
"""Environment variable with the cache folder (default ~/.cache/convbench)."""


def cache_folder(kind: str) -> Path:
    """Return the folder `KIND` in the cache folder, CONVBENCH_CACHE or else ~/.cache/convbench; it
    may not exist and is not created."""
    return Path(os.environ.get(CACHE) or "~/.cache/convbench").expanduser() / kind
