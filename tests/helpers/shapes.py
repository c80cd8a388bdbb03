"""Models of the papers' sizes: folders with their config.json, with or without a tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from convbench.models.weights_path import shipped_folder

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
QWEN_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}


def write_config(folder: Path, config: dict[str, object] = LLAMA_8B) -> Path:
    """Write a folder that holds config.json and nothing else."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_model(folder: Path, config: dict[str, object] = LLAMA_8B) -> Path:
    """Write a folder with such a config.json and a tokenizer, but no weights."""
    write_config(folder, config)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(shipped_folder("pocket")) / name, folder)
    return folder
