"""`doctor`: what is installed, reachable and missing, with the fix for each."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from convbench import install
from convbench.errors import MissingDependency

State = Literal["ok", "missing", "note"]

KEYS = {
    "OPENAI_API_KEY": "openai/… (gpt-4o, …)",
    "ANTHROPIC_API_KEY": "anthropic/… (claude-opus, …)",
    "GEMINI_API_KEY": "gemini/…",
    "HF_TOKEN": "publishing, gated and private repositories",
}
EXTRAS = {
    "train": ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed"),
    "local": ("torch", "transformers"),
    "tasks": ("sqlglot",),
    "analysis": ("matplotlib", "sklearn", "scipy", "umap"),
    "vision": ("numpy", "PIL", "playwright", "skimage"),
}


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    what: str
    state: State
    found: str
    fix: str = ""
    needed: bool = False
    """True where nothing works without it."""


def examine() -> list[Finding]:
    """Return the findings; nothing is sent but one small request to the Hub's address."""
    return [
        _python(),
        *_core(),
        *_extras(),
        _compiler(),
        _sandbox(),
        _browser(),
        _tailwind(),
        _gpu(),
        *_keys(),
        _hub(),
        _disk(),
    ]


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    return Finding(
        "python",
        "ok" if ok else "missing",
        platform.python_version(),
        "" if ok else "use Python 3.11 or newer",
        needed=True,
    )


def _core() -> list[Finding]:
    found = []
    for name in ("litellm", "datasets", "huggingface_hub", "duckdb", "pydantic", "typer"):
        version = _version(name)
        found.append(
            Finding(
                name,
                "ok" if version else "missing",
                version or "not installed",
                "" if version else f"pip install {name}",
                needed=True,
            )
        )
    if _version("litellm") in ("1.82.7", "1.82.8"):
        found.append(
            Finding(
                "litellm",
                "missing",
                "a release that was tampered with",
                "pip install 'litellm==1.106.2', and change your keys",
                needed=True,
            )
        )
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> list[Finding]:
    found = []
    for extra, modules in EXTRAS.items():
        lacking = [name for name in modules if importlib.util.find_spec(name) is None]
        found.append(
            Finding(
                f"[{extra}]",
                "note" if lacking else "ok",
                f"without {', '.join(lacking)}" if lacking else "installed",
                install.with_extra(extra) if lacking else "",
            )
        )
    return found


def _compiler() -> Finding:
    path = shutil.which("g++")
    if path:
        return Finding("g++", "ok", path)
    why = "not found (DeepSpeed compiles parts when it runs)"
    return Finding("g++", "note", why, "apt-get install g++")


def _sandbox() -> Finding:
    """Try the wall around model-written code."""
    from convbench.sandbox import boundary
    from convbench.sandbox.boundary import INSTALL

    try:
        return Finding("sandbox", "ok", boundary().kind)
    except MissingDependency:
        why = "none available here (runs model-written code: judge unit-tests)"
        return Finding("sandbox", "note", why, INSTALL)


def _browser() -> Finding:
    """Look for the system's Chromium."""
    from convbench.sandbox.boundary import INSTALL as WALL
    from convbench.sandbox.browser import INSTALL, chromium

    try:
        found = chromium()
        if shutil.which("bwrap") is None:
            why = "no wall around pages without bubblewrap"
            return Finding("chromium", "note", why, WALL)
        return Finding("chromium", "ok", found)
    except MissingDependency:
        why = "not found (renders model-written pages: judge render)"
        return Finding("chromium", "note", why, INSTALL)


def _tailwind() -> Finding:
    from convbench.sandbox import tailwind

    if tailwind.sheet():
        return Finding("tailwind", "ok", str(tailwind.place()))
    why = "not found (styles ColBench's pages: judge render)"
    return Finding("tailwind", "note", why, tailwind.FETCH)


def _gpu() -> Finding:
    path = shutil.which("nvidia-smi")
    if path:
        return Finding("gpu", "ok", "nvidia-smi is here")
    return Finding(
        "gpu",
        "note",
        "none: local models run on the CPU, vllm: not at all",
        "use a provider: --model openai/…, or --api-base URL",
    )


def _keys() -> list[Finding]:
    return [
        Finding(
            name,
            "ok" if os.environ.get(name) else "note",
            "set" if os.environ.get(name) else f"not set: {what}",
            "" if os.environ.get(name) else f"export {name}=…",
        )
        for name, what in KEYS.items()
    ]


def _hub() -> Finding:
    """Ask the Hub's address for its front page, two seconds at most."""
    import urllib.error
    import urllib.request

    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return Finding("Hub", "note", "offline mode: only what is cached", "unset HF_HUB_OFFLINE")
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http(s) only
        with urllib.request.urlopen(request, timeout=2):  # noqa: S310
            pass
    except urllib.error.HTTPError:
        pass  # it answered
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Finding(
            "Hub",
            "note",
            f"{address} cannot be reached: {reason}",
            "use local files: --set task.source.hub=null --set task.source.file=PATH",
        )
    return Finding("Hub", "ok", address)


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 1e9
    return Finding(
        "disk",
        "ok" if free > 2 else "note",
        f"{free:.0f} GB free here",
        "" if free > 2 else "make some room",
    )
