"""Remove what is private to a machine, or unsafe on another one, from manifests and judges.

Whatever is published or pulled goes through the same function. Addresses, keys, headers and request
bodies are dropped, paths are cut to their last part, and a judge's settings are held to limits.
Models keep their names: one that a command does not name is not called (`rollout/calls.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from convbench.schema import JudgeSpec, RunManifest
from convbench.util.redact import strip_address

N = TypeVar("N", RunManifest, JudgeSpec)

DROPPED = re.compile(
    r"(?i)(api|base|server|proxy)[_-]?(base|url|uri|host|port|key|token|version|type)"
    r"|(base|endpoint|proxy)[_-]?(url|uri)?|url|uri|host|port"
    r"|(extra|default)?[_-]?(body|headers?|query|params)"
    r"|.*(password|secret|credentials?|_token|_key)|authorization|organi[sz]ation"
    r"|weights|learner|vllm[_-]?python|interpreter|python|env(ironment)?|file|folder|log_dir"
)
"""Free settings that direct calls, hold keys, or name what is loaded from a disk."""
FREE = ("args", "extra")
"""Fields with settings that no schema names."""
MINE = re.compile(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[\\/]|file:")
"""Beginnings of local paths."""
TEXTS = frozenset(
    {
        "system",
        "systems",
        "say",
        "ask",
        "steps",
        "prompt",
        "instruction",
        "opening",
        "until",
        "private_before",
        "answer_after",
        "title",
        "about",
        "label",
        "note",
        "why",
        "mode_reason",
        "citation",
        "reference",
        "line",
    }
)
"""Fields with text and templates, in which nothing is taken for a path."""
REFERENCES = frozenset({"model", "default", "judge", "grader", "speakers", "checkpoint"})
"""Fields that name models: an address in one would be called."""
ADDRESS = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,60}+://\S*")

LIMITS: Mapping[str, float] = {
    "seconds": 1,
    "memory_mb": 768,
    "output_kb": 1024,
    "file_mb": 8,
    "pairs": 8,
    "guard": 16,
    "writes_tokens": 1024,
    "max_tokens": 1024,
    "max_length": 8192,
    "max_steps": 2000,
    "max_seconds": 600,
    "epochs": 100,
    "seeds": 8,
    "batch_size": 64,
    "accumulation": 64,
    "ask_at_once": 256,
    "r": 256,
}
"""Largest values of a foreign judge's settings (`args`), in the unit that the name says. Anything
but a number from 0 up to the limit is replaced by the limit."""
ASKS, REPLY = 5, 8192
"""Largest number of replies, and of tokens of one, of a foreign rubric."""
MODULES = frozenset({"numpy", "pandas", "scipy", "bs4", "requests", "dateutil", "pytz", "sympy"})
"""Modules that a foreign judge may make available to the code in a sandbox."""
FIXED: Mapping[str, str] = {"kind": "auto", "clip": "openai/clip-vit-base-patch32"}
"""Settings that a foreign judge may not change: kind of sandbox, which CLIP is loaded."""


def make_portable(noun: N) -> N:
    """Return a copy of a manifest or judge that is safe to publish, or to use after a pull.

    Local paths become their last part; addresses lose user, query and fragment, and in fields that
    name models are replaced by `[address]`; of free settings (`args`, `extra`) those with
    addresses, keys or files are dropped. `api_base` and a judge's `file` or a speaker's `weights`
    become None. A judge is held to limits (`within_limits`). Raises pydantic's ValidationError if
    the rest is invalid.
    """
    value = type(noun).model_validate(_portable_json(noun.model_dump(mode="json")))
    if isinstance(value, JudgeSpec):
        return within_limits(value).model_copy(update={"api_base": None, "file": None})
    cast = {
        name: member.model_copy(update={"api_base": None, "weights": None})
        for name, member in value.cast.items()
    }
    return value.model_copy(update={"cast": cast})


def within_limits(spec: JudgeSpec) -> JudgeSpec:
    """Return a copy of a judge from elsewhere with `asks`, `max_tokens` and `args` held to the
    limits of this module (`LIMITS`).

    A setting that is beyond its limit, negative or no number becomes the limit; `kind` and `clip`
    become fixed values, and of `modules` only allowed ones stay.
    """
    return spec.model_copy(
        update={
            "asks": min(spec.asks, ASKS),
            "max_tokens": min(spec.max_tokens, REPLY),
            "args": _limit_settings(spec.args),
        }
    )


def portable_values(value: Any) -> Any:
    """Return a copy of a JSON value with its texts made portable, such as a recipe or a model's
    configuration.

    Local paths become their last part and addresses lose user, query and fragment. Fields of prose
    and texts of several lines stay as they are. Of `args` and `extra`, settings with addresses,
    keys or files are dropped.
    """
    return _portable_json(value)


def _portable_json(value: Any, key: str = "", *, free: bool = False) -> Any:
    """Return a JSON value with portable texts; keys of `DROPPED` are left out of free settings."""
    if key in TEXTS or (isinstance(value, str) and "\n" in value):
        return value
    if isinstance(value, Mapping):
        return {
            name: _portable_json(
                item, key if key in REFERENCES else name, free=free or name in FREE
            )
            for name, item in value.items()
            if not (free and DROPPED.fullmatch(name))
        }
    if isinstance(value, list):
        return [_portable_json(item, key, free=free) for item in value]
    if not isinstance(value, str):
        return value
    return portable_text(ADDRESS.sub("[address]", value) if key in REFERENCES else value)


def portable_text(text: str) -> str:
    """Return the last part of a local path, an address without user, query and fragment, or other
    text unchanged.

    Of `NAME:PATH` the name stays: `local:/a/b` gives `local:b`.
    """
    scheme, colon, rest = text.partition(":")
    if MINE.match(text):
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    if rest.startswith("//"):
        return strip_address(text)
    if colon and scheme.isalpha() and MINE.match(rest):
        return f"{scheme}:{portable_text(rest)}"
    return text


def _limit_settings(value: Any, key: str = "") -> Any:
    """Return settings with every value held to FIXED, LIMITS and MODULES."""
    if key == "modules":
        return [name for name in value if name in MODULES] if isinstance(value, list) else []
    if isinstance(value, Mapping):
        return {name: _limit_settings(item, name) for name, item in value.items()}
    if key in FIXED:
        return FIXED[key]
    if key in LIMITS:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and 0 <= value <= LIMITS[key] else LIMITS[key]
    return value
