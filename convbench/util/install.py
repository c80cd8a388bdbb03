"""Return commands that install more of convbench, in the way in which it was installed."""

from __future__ import annotations

import importlib.util
import json
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "convbench"
PINS = "constraints.txt"
"""In a checkout or inside a wheel: the versions that the tests ran with."""
NEEDS_TORCH = ("train", "local", "qlora")


def with_extra(name: str) -> str:
    """Return the shell command that installs an extra (`train`, `analysis`, ...), in the way in
    which convbench was installed.

    If the extra needs torch and it is missing, a command for torch comes first, joined by `&&`.
    """
    extra = f"pip install {install_arguments(name, _read_origin())}"
    if name in NEEDS_TORCH and importlib.util.find_spec("torch") is None:
        return f"pip install {pinned_requirement('torch')} && {extra}"
    return extra


def pinned_requirement(package: str) -> str:
    """Return the requirement `PACKAGE==VERSION` with the version that the tests ran with.

    Raise StopIteration for a package without a pin.
    """
    here = Path(__file__).resolve().parents[1]
    file = next(candidate for candidate in (here / PINS, here.parent / PINS) if candidate.is_file())
    return next(
        candidate
        for candidate in file.read_text().splitlines()
        if candidate.startswith(f"{package}==")
    )


def install_arguments(name: str, origin: dict[str, Any]) -> str:
    """Return the arguments of `pip install` for an extra, quoted for a shell.

    `origin` is a `direct_url.json` (PEP 610) as pip writes it, empty if convbench came from an
    index: `convbench[NAME]`. A folder gives `FOLDER[NAME]`, with `-e` if editable and `-c` with its
    pins if it has them, version control `convbench[NAME] @ VCS+URL@COMMIT`, any other url
    `convbench[NAME] @ URL`.
    """
    url = str(origin.get("url", ""))
    folder = Path(unquote(urlsplit(url).path))
    if "dir_info" in origin:
        flag = "-e " if origin["dir_info"].get("editable") else ""
        pins = f" -c {shlex.quote(str(folder / PINS))}" if (folder / PINS).is_file() else ""
        return f"{flag}{shlex.quote(f'{folder}[{name}]')}{pins}"
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    requirement = f"{NAME}[{name}]"
    return shlex.quote(f"{requirement} @ {url}" if url else requirement)


def _read_origin() -> dict[str, Any]:
    """Return the `direct_url.json` of convbench, or the folder of a checkout that is not
    installed."""
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        root = Path(__file__).resolve().parents[2]
        return {"url": root.as_uri(), "dir_info": {"editable": True}}
    origin = json.loads(text) if text else {}
    return origin if isinstance(origin, dict) else {}
