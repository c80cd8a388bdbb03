"""Convert GGUF files to folders of transformers weights, dequantised once into the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

from convbench.errors import FatalModelError, MissingDependency
from convbench.util.cache import cache_folder
from convbench.util.install import with_extra

MODELS = "models"
"""Kind of the cache: converted and fetched weights."""
HEAD = 4 << 20
"""Bytes of a file that identify it, with its size and time: GGUF begins with all of its metadata
and the list of its tensors."""
WIDE = 1 << 30
"""Largest file in bytes whose weights become float32; those of a larger one become bfloat16."""
GROWTH = 8
"""Most bytes of float32 for one byte of the narrowest quantisation in use."""
MAGIC = b"GGUF"
SOURCE = "source.json"
"""File in a converted or fetched folder that says what it was made of."""


def is_gguf(path: str) -> bool:
    """Return True if the text ends in `.gguf` and is the path of an existing file, `~` allowed.

    The file is not opened.
    """
    return path.endswith(".gguf") and Path(path).expanduser().is_file()


def converted_folder(path: str) -> Path:
    """Return the folder in the cache with a GGUF file's weights for transformers.

    It is converted at first use, which a line on stderr announces, and again after the file
    changes. Raise FatalModelError if the file cannot be read as GGUF or the disk is too small,
    MissingDependency without torch, transformers or gguf.
    """
    file = Path(path).expanduser().resolve()
    target = cache_folder(MODELS) / f"{file.stem}-{_file_key(file)}"
    if not (target / "config.json").is_file():
        print(f"converting {file.name} (once) to {target}", file=sys.stderr)
        convert_file(file, target, {"file": file.name, "bytes": file.stat().st_size})
    return target


def convert_file(file: Path, target: Path, source: dict[str, object]) -> None:
    """Write the folder `target` with a GGUF file's weights, tokenizer and chat template,
    atomically.

    `source` is written as JSON to `source.json` in it. An existing `target` stays as it is. Raise
    FatalModelError if the file cannot be read as GGUF or less than eight times its size is free,
    MissingDependency without torch, transformers or gguf.
    """
    missing = [name for name in ("torch", "transformers", "gguf") if not _is_installed(name)]
    if missing:
        raise MissingDependency(
            " and ".join(missing), needed_for=f"reading {file.name}", install=with_extra("local")
        )
    with file.open("rb") as opened:
        if (start := opened.read(len(MAGIC))) != MAGIC:
            raise FatalModelError(
                f"{file}: cannot be read as GGUF weights: begins with {start!r}, not {MAGIC!r}"
            )
    need, free = file.stat().st_size * GROWTH, shutil.disk_usage(_make_parent(target)).free
    if need > free:
        raise FatalModelError(
            f"{file}: its weights may take {need >> 20} MiB in {target.parent}, where "
            f"{free >> 20} MiB are free; set CONVBENCH_CACHE to another folder"
        )
    half = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write(file, half)
        (half / SOURCE).write_text(json.dumps(source, indent=1) + "\n")
        half.chmod(0o755)
        if not target.exists():
            half.rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _write(file: Path, folder: Path) -> None:
    """Save the file's weights to a folder in a subprocess, which releases its memory and hides what
    libraries print. Raises FatalModelError."""
    command = [sys.executable, "-m", "convbench.models.gguf", str(file), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise FatalModelError(f"{file}: cannot be read as GGUF weights: {lines[-1]}")


def save_weights(file: Path, folder: Path) -> None:
    """Write the file's weights, tokenizer and chat template to a folder, unquantised.

    The weights are float32 for a file of at most 1 GiB, else bfloat16. transformers saves no
    quantised model, so the tensors are moved to an unquantised one.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float32 if file.stat().st_size <= WIDE else torch.bfloat16
    source_folder = str(file.parent)
    tokenizer = AutoTokenizer.from_pretrained(source_folder, gguf_file=file.name)
    read = AutoModelForCausalLM.from_pretrained(source_folder, gguf_file=file.name, dtype=dtype)
    del read.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read.config, dtype=dtype)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _file_key(file: Path) -> str:
    state = file.stat()
    digest = hashlib.sha256(f"{state.st_size} {state.st_mtime_ns}\n".encode())
    with file.open("rb") as opened:
        digest.update(opened.read(HEAD))
    return digest.hexdigest()[:12]


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _make_parent(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.parent


if __name__ == "__main__":
    save_weights(Path(sys.argv[1]), Path(sys.argv[2]))
