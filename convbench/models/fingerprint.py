"""Which weights a model is: a fingerprint of their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

ENDS = 1 << 20
"""Bytes at each end of a weights file that its fingerprint reads."""


def weights_fingerprint(folder: Path) -> str | None:
    """Return a hash of a local model: small files whole, large ones by size and both ends."""
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".jinja", ".model"):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(ENDS))
                file.seek(max(0, size - ENDS))
                digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]
