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
        *_programs(),
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
                f"pip install 'convbench[{extra}]'" if lacking else "",
            )
        )
    return found


def _programs() -> list[Finding]:
    wanted = {
        "g++": ("DeepSpeed builds parts of itself at run time", "apt-get install g++"),
        "bwrap": ("runs model-written code safely", "apt-get install bubblewrap"),
        "chromium": ("renders model-written pages", "apt-get install chromium"),
    }
    found = []
    for name, (why, fix) in wanted.items():
        path = shutil.which(name)
        found.append(
            Finding(
                name, "ok" if path else "note", path or f"not found ({why})", "" if path else fix
            )
        )
    return found


def _gpu() -> Finding:
    path = shutil.which("nvidia-smi")
    if path:
        return Finding("gpu", "ok", "nvidia-smi is here")
    return Finding(
        "gpu",
        "note",
        "none found: local models run on the CPU, vllm: does not run",
        "use a provider or a server: --model openai/…, --api-base URL",
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
