"""What of a manifest or a judge means something on another machine, and may be heeded there.

One function stands at every boundary: what is published and what is pulled goes through
`portable`. Addresses, keys, headers and request bodies are dropped, paths are cut to their last
part, and the settings of a judge lift no limit. Models keep their names: a call that they cause
needs a consent (`convbench.models.consent`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from convbench.blot import address
from convbench.schema import JudgeSpec, RunManifest

N = TypeVar("N", RunManifest, JudgeSpec)

DROPPED = re.compile(
    r"(?i)(api|base|server|proxy)[_-]?(base|url|uri|host|port|key|token|version|type)"
    r"|(base|endpoint|proxy)[_-]?(url|uri)?|url|uri|host|port"
    r"|(extra|default)?[_-]?(body|headers?|query|params)"
    r"|.*(password|secret|credentials?|_token|_key)|authorization|organi[sz]ation"
    r"|weights|learner|vllm[_-]?python|interpreter|python|env(ironment)?|file|folder|log_dir"
)
"""Free settings that say where calls go, with which key, or what is loaded from a disk."""
FREE = ("args", "extra")
"""Fields of settings that no schema names."""
MINE = re.compile(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[\\/]|file:")
"""How a path of one machine begins."""
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
"""Fields of words and templates: what looks like a path there is none."""
REFERENCES = frozenset({"model", "default", "judge", "grader", "speakers", "checkpoint"})
"""Fields that name models: an address in one would be asked."""
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
"""The most that the settings (`args`) of another's judge may ask for, each with its unit in its
name; what is no number above 0 counts as asking for too much."""
ASKS, REPLY = 5, 8192
"""The most replies, and tokens of one, that another's rubric may ask for."""
MODULES = frozenset({"numpy", "pandas", "scipy", "bs4", "requests", "dateutil", "pytz", "sympy"})
"""Modules of this machine that another's judge may open to the code in a sandbox."""
FIXED: Mapping[str, str] = {"kind": "auto", "clip": "openai/clip-vit-base-patch32"}
"""Settings that another's judge may not change: the wall of the sandbox, what CLIP is loaded."""


def portable(noun: N) -> N:
    """Return a manifest or judge as it may cross from one machine to another, either way."""
    value = type(noun).model_validate(_walk(noun.model_dump(mode="json")))
    if isinstance(value, JudgeSpec):
        return within_limits(value).model_copy(update={"api_base": None, "file": None})
    cast = {
        name: member.model_copy(update={"api_base": None, "weights": None})
        for name, member in value.cast.items()
    }
    return value.model_copy(update={"cast": cast})


def within_limits(spec: JudgeSpec) -> JudgeSpec:
    """Return another's judge with settings that ask for no more than `LIMITS`."""
    return spec.model_copy(
        update={
            "asks": min(spec.asks, ASKS),
            "max_tokens": min(spec.max_tokens, REPLY),
            "args": _limited(spec.args),
        }
    )


def portable_values(value: Any) -> Any:
    """Return a JSON value (a recipe, a model's configuration) in the same way."""
    return _walk(value)


def _walk(value: Any, key: str = "", *, free: bool = False) -> Any:
    """Return a JSON value with portable texts and, in free settings, without what is `DROPPED`."""
    if key in TEXTS or (isinstance(value, str) and "\n" in value):
        return value
    if isinstance(value, Mapping):
        return {
            name: _walk(item, key if key in REFERENCES else name, free=free or name in FREE)
            for name, item in value.items()
            if not (free and DROPPED.fullmatch(name))
        }
    if isinstance(value, list):
        return [_walk(item, key, free=free) for item in value]
    if not isinstance(value, str):
        return value
    return plain(ADDRESS.sub("[address]", value) if key in REFERENCES else value)


def plain(text: str) -> str:
    """Return a name, path or address without what tells of a machine: a path's last part, an
    address without user, query and fragment."""
    scheme, colon, rest = text.partition(":")
    if MINE.match(text):
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    if rest.startswith("//"):
        return address(text)
    if colon and scheme.isalpha() and MINE.match(rest):
        return f"{scheme}:{plain(rest)}"
    return text


def _limited(value: Any, key: str = "") -> Any:
    """Return settings whose every value is one of ours or below it."""
    if key == "modules":
        return [name for name in value if name in MODULES] if isinstance(value, list) else []
    if isinstance(value, Mapping):
        return {name: _limited(item, name) for name, item in value.items()}
    if key in FIXED:
        return FIXED[key]
    if key in LIMITS:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and 0 <= value <= LIMITS[key] else LIMITS[key]
    return value
