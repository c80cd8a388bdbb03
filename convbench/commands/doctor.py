"""`convbench doctor`: what is installed, reachable and missing, with the fix for each."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import print_table
from convbench.errors import MissingDependency
from convbench.util import install

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
MARKS = {"ok": "[green]ok[/]", "missing": "[red]missing[/]", "note": "[yellow]note[/]"}


@dataclass(frozen=True)
class DoctorOptions:
    """Show what is installed, reachable and missing, with the fix for each."""

    EXAMPLES: ClassVar = ("convbench doctor",)


class FindingAnswer(Answer):
    """One line of `doctor`."""

    what: str
    """What was checked."""
    state: str
    """ok, missing or note."""
    found: str
    """What was found."""
    fix: str
    """What to do."""
    needed: bool
    """Whether convbench cannot work without it."""


class DoctorAnswer(Answer):
    """`doctor`: what is installed, reachable and missing."""

    findings: list[FindingAnswer]
    """Everything that was checked."""


def run(options: DoctorOptions, context: RunContext) -> DoctorAnswer:
    """Check this machine, and return the findings. Nothing is installed.

    One small request is sent, to the Hub's address. The exit code becomes 1 if something is missing
    that convbench cannot work without.
    """
    findings = [
        _check_python(),
        *_check_core(),
        *_check_extras(),
        _check_compiler(),
        _check_sandbox(),
        _check_browser(),
        _check_tailwind(),
        _check_gpu(),
        *_check_keys(),
        _check_hub(),
        _check_disk(),
    ]
    if any(finding.needed and finding.state == "missing" for finding in findings):
        context.exit_code = 1
    return DoctorAnswer(findings=findings)


def show(answer: DoctorAnswer) -> None:
    """Print the findings."""
    from rich.markup import escape
    from rich.table import Table

    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(no_wrap=True, style="bold")
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for finding in answer.findings:
        text = escape(finding.found)
        if finding.fix:
            text += f"\n[dim]→ {escape(finding.fix)}[/]"
        rows.add_row(escape(finding.what), MARKS[finding.state], text)
    print_table(rows)


def _make_finding(
    what: str, state: str, text: str, fix: str = "", *, needed: bool = False
) -> FindingAnswer:
    return FindingAnswer(what=what, state=state, found=text, fix=fix, needed=needed)


def _check_python() -> FindingAnswer:
    ok = sys.version_info >= (3, 11)
    fix = "" if ok else "use Python 3.11 or newer"
    return _make_finding("python", _state_word(ok), platform.python_version(), fix, needed=True)


def _state_word(ok: bool, otherwise: str = "missing") -> str:
    return "ok" if ok else otherwise


def _check_core() -> list[FindingAnswer]:
    findings = []
    for name in ("litellm", "datasets", "huggingface_hub", "duckdb", "pydantic", "typer"):
        version = _installed_version(name)
        fix = "" if version else f"pip install {name}"
        text = version or "not installed"
        findings.append(_make_finding(name, _state_word(bool(version)), text, fix, needed=True))
    if _installed_version("litellm") in ("1.82.7", "1.82.8"):
        fix = "pip install 'litellm==1.106.2', and change your keys"
        text = "a release that was tampered with"
        findings.append(_make_finding("litellm", "missing", text, fix, needed=True))
    return findings


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _check_extras() -> list[FindingAnswer]:
    findings = []
    for extra, modules in EXTRAS.items():
        lacking = [name for name in modules if importlib.util.find_spec(name) is None]
        text = f"without {', '.join(lacking)}" if lacking else "installed"
        fix = install.with_extra(extra) if lacking else ""
        findings.append(_make_finding(f"[{extra}]", _state_word(not lacking, "note"), text, fix))
    return findings


def _check_compiler() -> FindingAnswer:
    path = shutil.which("g++")
    if path:
        return _make_finding("g++", "ok", path)
    why = "not found (DeepSpeed compiles parts when it runs)"
    return _make_finding("g++", "note", why, "apt-get install g++")


def _check_sandbox() -> FindingAnswer:
    """Try the wall around model-written code."""
    from convbench.sandbox import boundary
    from convbench.sandbox.wall import INSTALL

    try:
        return _make_finding("sandbox", "ok", boundary().kind)
    except MissingDependency:
        why = "none available here (runs model-written code: judge unit-tests)"
        return _make_finding("sandbox", "note", why, INSTALL)


def _check_browser() -> FindingAnswer:
    """Look for the system's Chromium."""
    from convbench.sandbox.browser import INSTALL, chromium
    from convbench.sandbox.wall import INSTALL as WALL

    try:
        path = chromium()
        if shutil.which("bwrap") is None:
            why = "pages are not sandboxed without bubblewrap"
            return _make_finding("chromium", "note", why, WALL)
        return _make_finding("chromium", "ok", path)
    except MissingDependency:
        why = "not found (renders model-written pages: judge render)"
        return _make_finding("chromium", "note", why, INSTALL)


def _check_tailwind() -> FindingAnswer:
    from convbench.sandbox import tailwind

    if tailwind.read_sheet():
        return _make_finding("tailwind", "ok", str(tailwind.sheet_path()))
    why = "not found (styles ColBench's pages: judge render)"
    return _make_finding("tailwind", "note", why, tailwind.FETCH)


def _check_gpu() -> FindingAnswer:
    if shutil.which("nvidia-smi"):
        return _make_finding("gpu", "ok", "nvidia-smi found")
    text = "none: local models run on the CPU; vllm: cannot run"
    return _make_finding("gpu", "note", text, "use a provider: --model openai/…, or --api-base URL")


def _check_keys() -> list[FindingAnswer]:
    return [
        _make_finding(name, "ok", "set")
        if os.environ.get(name)
        else _make_finding(name, "note", f"not set: {what}", f"export {name}=…")
        for name, what in KEYS.items()
    ]


def _check_hub() -> FindingAnswer:
    """Check that the Hub's address answers within two seconds."""
    import urllib.error
    import urllib.request

    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return _make_finding(
            "Hub", "note", "offline mode: only what is cached", "unset HF_HUB_OFFLINE"
        )
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - http(s) only
        with urllib.request.urlopen(request, timeout=2):  # noqa: S310
            pass
    except urllib.error.HTTPError:
        pass  # it answered
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        text = f"{address} cannot be reached: {reason}"
        fix = "use local files: --set task.source.hub=null --set task.source.file=PATH"
        return _make_finding("Hub", "note", text, fix)
    return _make_finding("Hub", "ok", address)


def _check_disk() -> FindingAnswer:
    free = shutil.disk_usage(".").free / 1e9
    ok = free > 2
    fix = "" if ok else "free some disk space"
    return _make_finding("disk", _state_word(ok, "note"), f"{free:.0f} GB free here", fix)


doctor_command = Command(run, show)
