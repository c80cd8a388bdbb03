"""How two records differ, leaf by leaf."""

from __future__ import annotations

from typing import Any

LONGEST = 60
"""Characters of a value that are shown."""


def differences(key: str, old: Any, new: Any) -> list[str]:
    """Return `key: old → new` for every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in sorted(set(old) | set(new))
            for line in differences(f"{key}.{name}", old.get(name), new.get(name))
        ]
    return [] if old == new else [f"{key}: {_short(old)} → {_short(new)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
