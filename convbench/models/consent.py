"""Ask for the user's consent before calls that foreign data cause at the user's cost.

Addresses that this user has typed are stored in `~/.local/state/convbench`, one per line.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from convbench.errors import RunError
from convbench.models.aliases import resolve
from convbench.models.open import base_of
from convbench.models.weights_path import SHIPPED_REFS
from convbench.util.terminal import ask_to_continue


def remember_address(address: str) -> None:
    """Append the scheme, host and port of an address that the user typed to the stored addresses.

    A known address is not written again. An error of the file system is ignored, so that the user
    is asked again later.
    """
    if is_known(address):
        return
    with contextlib.suppress(OSError):
        _addresses_path().parent.mkdir(parents=True, exist_ok=True)
        with _addresses_path().open("a", encoding="utf-8") as file:
            file.write(_origin_of(address) + "\n")


def is_known(address: str) -> bool:
    """Return True if a run's address may be called without asking.

    It may if its host is `localhost` or a loopback address, or if its scheme, host and port are
    those of a stored address or of an environment variable whose name ends in `_API_BASE` or
    `_BASE_URL`.
    """
    if _is_local_host(urlsplit(address).hostname or ""):
        return True
    named = [v for k, v in os.environ.items() if k.endswith(("_API_BASE", "_BASE_URL"))]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        named += _addresses_path().read_text(encoding="utf-8").splitlines()
    return _origin_of(address) in {_origin_of(entry) for entry in named}


def _origin_of(address: str) -> str:
    """Return scheme, host and port of an address: where the key is sent."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def _is_local_host(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _addresses_path() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "convbench" / "addresses"


HARMLESS = ("rule:", "scripted:")
"""Prefixes of models that call nobody and load nothing."""
SHIPPED = ("script", *SHIPPED_REFS)
_agreed: set[str] = set()
"""MODEL@HOST that the user has agreed to in this process."""


def require_consent(
    origin: str,
    ref: str,
    api_base: str | None,
    *,
    allowed: Collection[str] = (),
    specs: Sequence[Path] = (),
) -> None:
    """Raise RunError unless this model may be called for `origin`, e.g. a run's file; else return
    None.

    Rules, scripts and the models shipped with convbench need no consent. Otherwise MODEL@HOST must
    be in `allowed` (the values of `--allow-calls`), or the user agrees on the terminal, which holds
    for the rest of the process. Without a terminal that is a refusal. The message names model, host
    and flag.
    """
    if ref in SHIPPED or ref.startswith(HARMLESS):
        return
    target = f"{ref}@{host_of(ref, api_base, specs)}"
    if target in allowed or target in _agreed:
        return
    shown = printable_line(target)
    if ask_to_continue(
        f"{printable_line(origin)} wants to call {shown} with your key, at your cost."
    ):
        _agreed.add(target)
        return
    raise RunError(
        f"{printable_line(origin)} wants to call {shown} with your key, at your cost; to allow "
        f"it, add --allow-calls {shown}"
    )


def host_of(ref: str, api_base: str | None, specs: Sequence[Path] = ()) -> str:
    """Return `HOST[:PORT]` where a model would be called, without user and password.

    It is `here` for weights on this machine, and the provider's name if neither `api_base` nor the
    provider's environment sets an address. Raise FatalModelError for an unknown model.
    """
    model = resolve(ref, api_base=api_base, specs=specs)
    if model.ref.partition(":")[0] in ("local", "vllm"):
        return "here"
    base = api_base or base_of(model.provider)
    return urlsplit(base).netloc.rpartition("@")[2] if base else model.provider


def printable_line(text: str) -> str:
    """Return the first 200 characters of untrusted text, with `?` for each that is not
    printable."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:200])
