"""Addresses that this user has named here, one a line in `~/.local/state/convbench/addresses`.

A run's records say where its models were served, so that a resume or an evaluation asks there
again, with the user's key. A run folder may have come from anyone: an address in it is followed
only where this user once typed it (`--api-base`) or the environment names it, or on this machine.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit


def remember(address: str) -> None:
    """Keep an address that the user typed. Where nothing can be written it is asked for again."""
    if is_known(address):
        return
    with contextlib.suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        with _file().open("a", encoding="utf-8") as file:
            file.write(_origin(address) + "\n")


def is_known(address: str) -> bool:
    """Whether a run's address may be asked without a question."""
    if _here(urlsplit(address).hostname or ""):
        return True
    named = [v for k, v in os.environ.items() if k.endswith(("_API_BASE", "_BASE_URL"))]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        named += _file().read_text(encoding="utf-8").splitlines()
    return _origin(address) in {_origin(one) for one in named}


def _origin(address: str) -> str:
    """Return scheme, host and port: who gets the key."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def _here(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "convbench" / "addresses"
