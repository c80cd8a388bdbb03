"""Fill in the commented specs from which users start their own."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from convbench.errors import SpecError

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def scaffold_files(kind: str, name: str, folder: Path, variant: str = "") -> dict[Path, str]:
    """Return the text of the files of a new spec by path, `FOLDER/KINDs/NAME.SUFFIX`; nothing is
    written.

    The YAML is last, so that a spec never exists without its rows. `variant` selects another
    template, such as `open` of a task; an unknown one gives no files. Raises SpecError for an
    invalid name.
    """
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{name[:80]!r}: expected a name of up to 64 small letters, digits and dashes"
        )
    source = resources.files("convbench.catalog") / "scaffolds"
    stem = f"{kind}-{variant}" if variant else kind
    files = sorted(entry.name for entry in source.iterdir() if entry.name.split(".")[0] == stem)
    target = folder / f"{kind}s"
    return {
        target / f"{name}{Path(file).suffix}": (source / file)
        .read_text(encoding="utf-8")
        .replace("NAME", name)
        .replace("FOLDER", folder.as_posix())
        for file in files
    }
