"""The style sheet that ColBench's pages request: Tailwind 2.2.19, MIT licensed, not shipped here.

`python -m convbench.sandbox.tailwind` fetches it with npm into the user's cache. Nothing is fetched
while pages are rendered: without the file all pages are unstyled, those of the reference too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from convbench.errors import DataError, MissingDependency

PACKAGE = "tailwindcss@2.2.19"
FILE = "dist/tailwind.min.css"
ADDRESS = f"{PACKAGE}/{FILE}"
"""How the links to it in pages end."""
DEFAULT_PATH = "~/.cache/convbench/tailwind-2.2.19.min.css"
FETCH = "python -m convbench.sandbox.tailwind"
SHA256 = "b6ad97402eddb903e7a5d7a73ee47a679204efbdda4521a391cbad9df509b932"


def sheet_path() -> Path:
    """Return the path of the style sheet: CONVBENCH_TAILWIND, else a file in the user's cache."""
    return Path(os.environ.get("CONVBENCH_TAILWIND") or DEFAULT_PATH).expanduser()


def read_sheet() -> bytes:
    """Return the style sheet; empty if the file is missing."""
    return sheet_path().read_bytes() if sheet_path().is_file() else b""


def fetch_sheet(to: Path) -> None:
    """Write the style sheet from its npm package to the file `to`, replacing one that exists.

    Raise MissingDependency without npm, DataError if npm fails or the file has another hash.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise MissingDependency(
            "npm",
            needed_for=f"fetching {PACKAGE}",
            install=f"apt-get install npm, or put {FILE} of {PACKAGE} at {to}",
        )
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)  # noqa: S603
        packed = next(Path(folder).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise DataError(
                f"{' '.join(command[1:])}: {(done.stderr or 'produced no file').strip()}"
            )
        with tarfile.open(packed) as archive:
            member = archive.extractfile(f"package/{FILE}")
            content = member.read() if member else b""
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise DataError(f"{PACKAGE}: {FILE} has SHA-256 {digest}; expected {SHA256}")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(content)


if __name__ == "__main__":
    try:
        fetch_sheet(sheet_path())
    except (DataError, MissingDependency) as error:
        sys.exit(f"error: {error}")
    print(sheet_path())
