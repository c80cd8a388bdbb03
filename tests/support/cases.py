"""Cases that lie in YAML files beside the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C where it can be: the files are read by every worker, and hold thousands of lines."""


def load_cases(file: Path) -> Any:
    """Return what a YAML file holds."""
    return yaml.load(file.read_text(encoding="utf-8"), _Loader)
