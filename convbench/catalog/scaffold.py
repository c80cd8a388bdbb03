"""The commented specs that a user's own begin with."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from convbench.errors import SpecError

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def scaffold(kind: str, name: str, folder: Path, variant: str = "") -> dict[Path, str]:
    """Return (file → text) of a new spec of this kind in a folder of specs: the YAML last, so that
    a spec that exists has its rows. `variant` names another one to begin with, as `open` of a task.
    SpecError for what can be no spec's name."""
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{name[:80]!r}: expected a name of up to 64 small letters, digits and dashes"
        )
    source = resources.files("convbench.catalog") / "scaffolds"
    stem = f"{kind}-{variant}" if variant else kind
    files = sorted(one.name for one in source.iterdir() if one.name.split(".")[0] == stem)
    target = folder / f"{kind}s"
    return {
        target / f"{name}{Path(file).suffix}": (source / file)
        .read_text(encoding="utf-8")
        .replace("NAME", name)
        .replace("FOLDER", folder.as_posix())
        for file in files
    }
